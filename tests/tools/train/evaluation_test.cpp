// The loss of a text: which tokens are predicted by which sequence, against a forward pass of each
// sequence by itself; the same on any number of ranks, sharded and not. Against the validation of
// `fsdp train` and another implementation's loss: tests/e2e/eval.sh.
#include "tools/train/evaluation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_models.h"
#include "tools/train/placed_session.h"

namespace fsdp::tools {
namespace {

using Ids = std::vector<int32_t>;

Ids text_of(size_t size) {
  Ids out(size);
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<int32_t>((i * i + 3 * i + 1) % 29);
  return out;
}

PlacedOptions options_of(comm::Strategy strategy, int64_t length, bool shifted = true) {
  PlacedOptions options = {{.model = test::tiny_llama(), .max_length = length}};
  options.fsdp.param_dtype = options.fsdp.reduce_dtype = DType::kF64;
  options.fsdp.strategy = strategy;
  options.model.shifted_labels = shifted;
  options.training = false;
  return options;
}

// By definition: -ln of the softmax of the logits in front of each predicted token (at it, where
// labels are not shifted), each sequence by itself.
TextLoss plain_loss(const Ids& text, int64_t length, int64_t stride, bool shifted) {
  TextLoss out;
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    Session session = place_session(world, options_of(comm::Strategy::kNoShard, length, shifted));
    session.initialise(models::from_scratch(5));
    const auto size = static_cast<int64_t>(text.size());
    const auto vocabulary = session.model().config().vocabulary;
    const int64_t ahead = shifted ? 1 : 0;
    int64_t known = ahead;  // tokens that have been predicted, or never are
    for (int64_t begin = 0;; begin += stride) {
      const int64_t end = std::min(begin + length, size);
      const Ids part(text.begin() + begin, text.begin() + end);
      const std::vector<double> logits =
          session.logits({.rows = 1, .length = end - begin, .tokens = part});
      for (int64_t i = std::max(known, begin + ahead); i < end; ++i) {
        const auto row = logits.begin() + (i - ahead - begin) * vocabulary;
        double sum = 0;
        for (int64_t v = 0; v < vocabulary; ++v) sum += std::exp(row[v]);
        out.nats += std::log(sum) - row[text[static_cast<size_t>(i)]];
        ++out.tokens;
      }
      known = end;
      if (end == size) break;
    }
  });
  return out;
}

TextLoss loss_on(int ranks, comm::Strategy strategy, const TextSequences& text) {
  std::vector<TextLoss> of_rank(static_cast<size_t>(ranks));
  comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
    Session session =
        place_session(world, options_of(strategy, text.length, text.rules.shifted_labels));
    session.initialise(models::from_scratch(5));
    of_rank[static_cast<size_t>(world.rank())] =
        loss_of_batches(session, batches_of(text, world.rank(), world.size()),
                        [](int64_t, const TextLoss&) { return true; });
  });
  for (const TextLoss& loss : of_rank) {
    CHECK(loss.nats == of_rank[0].nats);
    CHECK(loss.tokens == of_rank[0].tokens);
  }
  return of_rank[0];
}

TEST_CASE("evaluation: each token's -ln p, on any number of ranks, sharded and not") {
  for (const size_t size : {2, 7, 8, 9, 23, 24}) {
    for (const int64_t stride : {1, 3, 7, 8, -1, -3, -8}) {  // negative: labels not shifted
      const bool shifted = stride > 0;
      const Ids tokens = text_of(size);
      const TextSequences text = {.tokens = tokens,
                                  .length = 8,
                                  .stride = std::abs(stride),
                                  .batch = 5,
                                  .rules = {.shifted_labels = shifted}};
      const TextLoss expected = plain_loss(tokens, 8, text.stride, shifted);
      CAPTURE(size);
      CAPTURE(stride);
      if (stride < 8) CHECK(expected.tokens == static_cast<int64_t>(size) - (shifted ? 1 : 0));
      for (const int ranks : {1, 2, 3}) {
        const auto strategy = ranks == 2 ? comm::Strategy::kNoShard : comm::Strategy::kFullShard;
        const TextLoss got = loss_on(ranks, strategy, text);
        CHECK(got.tokens == expected.tokens);
        CHECK(got.nats == doctest::Approx(expected.nats).epsilon(1e-12));
      }
    }
  }
}

TEST_CASE("evaluation: the caller may end it after any batch") {
  const Ids tokens = text_of(64);
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    Session session = place_session(world, options_of(comm::Strategy::kFullShard, 8));
    session.initialise(models::from_scratch(5));
    const BatchSource batches = batches_of({.tokens = tokens, .length = 8, .stride = 8, .batch = 2},
                                           world.rank(), world.size());
    CHECK(batches.batches == 4);
    int64_t seen = 0;
    const TextLoss loss = loss_of_batches(session, batches, [&](int64_t done, const TextLoss& l) {
      CHECK(done == ++seen);
      CHECK(l.tokens == 14 * done);
      return done < 3;
    });
    CHECK(seen == 3);
    CHECK(loss.tokens == 42);
  });
}

TEST_CASE("evaluation: extents that are none") {
  const Ids tokens = text_of(9);
  const auto error = [&](const TextSequences& text) {
    return test::error_of([&] { batches_of(text, 0, 1); });
  };
  CHECK(error({.tokens = tokens, .length = 1, .stride = 1}) ==
        "--sequence-length: expected at least 2, got 1");
  CHECK(error({.tokens = tokens, .length = 4, .stride = 5}) ==
        "--stride: expected 1 to the sequence length of 4, got 5");
  CHECK(error({.tokens = {tokens.data(), 1}, .length = 4, .stride = 4}) ==
        "the text has 1 token: expected at least 2");
}

}  // namespace
}  // namespace fsdp::tools
