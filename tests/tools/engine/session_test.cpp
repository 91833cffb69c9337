// What a session refuses when it is made, and positions of padded rows. What it computes:
// tests/e2e/verify_models.sh.
#include "tools/engine/session.h"

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/support/places.h"
#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_models.h"

namespace fsdp {
namespace {

// The error of set-up and one step, "" when there is none.
std::string error_with(int ranks, const comm::FsdpOptions& fsdp) {
  SessionOptions options;
  options.model = models::family_defaults("gpt2");
  options.model.tied_head = false;
  options.model.vocabulary = 11;
  options.model.hidden = 8;
  options.model.layers = 2;
  options.model.heads = options.model.kv_heads = 2;
  options.model.head_dim = 4;
  options.model.ffn = 16;
  options.model.max_positions = options.max_length = 6;
  options.wrap = comm::wrap_classes({"GPT2Block", "Embedding"});
  options.fsdp = fsdp;
  return test::error_of([&] {
    comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
      Session session(world, test::on_cpu(), options);
      session.initialise(models::from_scratch(3));
      const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6};
      const Batch batch = make_batch({.length = 6, .tokens = tokens, .labels = tokens}, {}, 5);
      for (uint32_t step = 0; step < 2; ++step) session.train_step(batch, 1e-3, step).read();
    });
  });
}

TEST_CASE("session: token and position table as units of their own need two buffers") {
  const std::string refused = error_with(2, {.units_in_flight = 1});
  CHECK(test::contains(refused,
                       "fsdp.units_in_flight: expected at least 2, got 1: the token and "
                       "the position table are units of their own"));
  CHECK(error_with(2, {.units_in_flight = 2}) == "");
  CHECK(error_with(1, {.units_in_flight = 1}) == "");
  CHECK(error_with(2, {.strategy = comm::Strategy::kShardGradOp, .units_in_flight = 1}) == "");
  CHECK(error_with(2, {.strategy = comm::Strategy::kShardGradOp,
                       .units_in_flight = 1,
                       .release_arena = true}) == "");
}

// What a program of one's own may get wrong, and would otherwise train as something else.
TEST_CASE("session: options and batches that would train something else are refused") {
  CHECK(error_with(1, {.micro_steps = 0}) == "[fsdp] micro_steps: expected at least 1, got 0");
  CHECK(test::contains(
      error_with(2, {.accumulation = comm::Accumulation::kReduceEach, .fixed_order = true}),
      "[session] batch.rows_per_pass: expected at least 1 with fixed_order"));
  const auto with = [](const std::function<void(SessionOptions&, int rank)>& change,
                       int64_t labels = 10, double rate = 1e-3) {
    return test::error_of([&] {
      comm::run_local_ranks(2, [&](comm::Communicator& world) {
        SessionOptions options;
        options.model = test::tiny_gpt2();
        options.max_length = 6;
        change(options, world.rank());
        Session session(world, test::on_cpu(), options);
        session.initialise(models::from_scratch(3));
        const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6};
        session.train_step(
            make_batch({.length = 6, .tokens = tokens, .labels = tokens}, {}, labels), rate, 0);
      });
    });
  };
  const auto nothing = [](SessionOptions&, int) {};
  CHECK(with(nothing) == "");
  CHECK(test::contains(with(nothing, 4),
                       "batch.global_label_tokens: expected the sum over all "
                       "ranks, at least the 5 of this rank, got 4"));
  CHECK(test::contains(with(nothing, 10, -1), "learning rate: expected a number from 0, got -1"));
  CHECK(test::contains(with(nothing, 10, NAN), "learning rate: expected a number from 0, got nan"));
  CHECK(test::contains(with([](SessionOptions& o, int) { o.optimizer.beta1 = 1.5; }),
                       "[optimizer] beta1: expected a number from 0 to below 1, got 1.5"));
  CHECK(test::contains(with([](SessionOptions& o, int) { o.optimizer.weight_decay = NAN; }),
                       "[optimizer] weight_decay: expected a number from 0"));
  CHECK(test::contains(with([](SessionOptions& o, int rank) { o.optimizer.beta1 = rank * 0.5; }),
                       "different options of a step"));
}

// The mean of -ln p(token t) at every position t, of the logits.
double unshifted_loss(const std::vector<double>& logits, const std::vector<int32_t>& tokens) {
  const size_t vocabulary = logits.size() / tokens.size();
  double sum = 0;
  for (size_t t = 0; t < tokens.size(); ++t) {
    double total = 0;
    for (size_t v = 0; v < vocabulary; ++v) total += std::exp(logits[t * vocabulary + v]);
    sum += std::log(total) - logits[t * vocabulary + static_cast<size_t>(tokens[t])];
  }
  return sum / static_cast<double>(tokens.size());
}

TEST_CASE("session: a model that does not shift labels predicts every token where it stands") {
  SessionOptions options;
  options.model = test::small_workshop();
  options.model.shifted_labels = false;
  options.model.attention_dropout = options.model.residual_dropout = options.model.mlp_dropout = 0;
  options.max_length = 6;
  options.fsdp.param_dtype = options.fsdp.reduce_dtype = DType::kF64;
  for (const auto mean : {LossMean::kTokens, LossMean::kRanks}) {
    options.loss_mean = mean;
    comm::run_local_ranks(1, [&](comm::Communicator& world) {
      Session session(world, test::on_cpu(), options);
      session.initialise(models::from_scratch(3));
      const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6};
      const Batch batch = make_batch({.length = 6, .tokens = tokens, .labels = tokens},
                                     models::input_rules(options.model), 6);
      const double expected = unshifted_loss(session.logits(batch), tokens);
      CHECK(session.evaluate(batch) == doctest::Approx(expected).epsilon(1e-12));
      CHECK(session.train_step(batch, 0, 0).read().loss ==
            doctest::Approx(expected).epsilon(1e-12));
    });
  }
}

// Passes of two rows, the last of one, dealt to the ranks in turn; dropout.
Batch batch_in_passes(int rank, int ranks, int64_t first_sample) {
  constexpr int64_t kRows = 7, kRowsPerPass = 2, kLength = 6;
  LabelledRows own = {.length = kLength};
  for (int64_t row = 0; row < kRows; ++row) {
    if (row / kRowsPerPass % ranks != rank) continue;
    own.samples.push_back(first_sample + row);
    for (int64_t t = 0; t < kLength; ++t) {
      own.tokens.push_back(static_cast<int32_t>((row * 5 + t * 3) % 23));
    }
  }
  own.labels = own.tokens;
  Batch batch = make_batch(std::move(own), {}, kRows * (kLength - 1));
  batch.rows_per_pass = kRowsPerPass;
  batch.passes = 4;
  return batch;
}

using Losses = std::vector<double>;  // of steps, then norms of their gradients, then of evaluations

Losses losses_in_passes(int ranks, const comm::FsdpOptions& fsdp, int64_t shift_of_samples = 0) {
  Losses out;
  comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
    SessionOptions options = {.model = test::tiny_gpt2(), .max_length = 6, .fsdp = fsdp};
    options.model.embedding_dropout = options.model.attention_dropout = 0.2;
    options.fsdp.fixed_order = true;
    options.fsdp.micro_steps = (4 + ranks - 1) / ranks;
    options.seed = 3;
    Session session(world, test::on_cpu(), options);
    session.initialise(models::from_scratch(3));
    Losses losses, norms, evaluated;
    for (uint32_t step = 0; step < 3; ++step) {
      Batch batch = batch_in_passes(world.rank(), world.size(), step * 7);
      // Of the last row that rank 0 has: in its last micro-step.
      if (world.rank() == 0) batch.samples.back() += shift_of_samples;
      const StepValues values = session.train_step(batch, 1e-2, step).read();
      losses.push_back(values.loss);
      norms.push_back(values.grad_norm);
      evaluated.push_back(session.evaluate(batch));
    }
    if (world.rank() != 0) return;
    for (const Losses& part : {losses, norms, evaluated}) {
      out.insert(out.end(), part.begin(), part.end());
    }
  });
  return out;
}

TEST_CASE("session: passes with dropout give the same bits in whichever micro-step they are") {
  const Losses expected = losses_in_passes(1, {});
  CHECK(std::all_of(expected.begin(), expected.end(), [](double x) { return std::isfinite(x); }));
  for (const int ranks : {2, 3, 4}) {
    CAPTURE(ranks);
    CHECK((losses_in_passes(ranks, {}) == expected));
    CHECK((losses_in_passes(ranks, {.strategy = comm::Strategy::kNoShard}) == expected));
  }
  // A sample of the second micro-step under another number draws other masks.
  for (const int ranks : {1, 2}) {
    const Losses other = losses_in_passes(ranks, {}, 100);
    for (size_t step = 0; step < 3; ++step) CHECK(other[step] != expected[step]);
  }
}

// transformers numbers positions from the left edge whatever the mask says (GPT-2), fairseq from
// the first token: there, padding in front changes nothing.
// Its padding is also found without a mask.
TEST_CASE("session: padding in front and learned positions") {
  const std::vector<int32_t> alone = {5, 9, 2, 7};
  const LabelledRows plain = {.length = 4, .tokens = alone, .labels = alone};
  const LabelledRows padded = {.length = 6,
                               .tokens = {0, 0, 5, 9, 2, 7},
                               .labels = {-100, -100, -100, 9, 2, 7},
                               .mask = {0, 0, 1, 1, 1, 1}};
  for (const bool fairseq : {true, false}) {
    comm::run_local_ranks(1, [&](comm::Communicator& world) {
      SessionOptions options = {.model = fairseq ? test::tiny_fairseq() : test::tiny_gpt2(),
                                .max_length = 6};
      options.fsdp.param_dtype = options.fsdp.reduce_dtype = DType::kF64;
      options.training = false;
      Session session(world, test::on_cpu(), options);
      session.initialise(models::from_scratch(3));
      const auto loss = [&](const LabelledRows& rows) {
        return session.evaluate(make_batch(rows, models::input_rules(options.model), 3));
      };
      CHECK((std::abs(loss(padded) - loss(plain)) < 1e-13) == fairseq);
      LabelledRows by_token = padded;
      by_token.tokens = {1, 1, 5, 9, 2, 7};
      by_token.mask.clear();
      CHECK((std::abs(loss(by_token) - loss(plain)) < 1e-13) == fairseq);
    });
  }
}

TEST_CASE("session: a model that is only used has no memory for gradients") {
  const Batch batch =
      make_batch({.length = 4, .tokens = {5, 9, 2, 7}, .labels = {5, 9, 2, 7}}, {}, 6);
  for (const comm::Strategy strategy :
       {comm::Strategy::kNoShard, comm::Strategy::kShardOptimizer, comm::Strategy::kFullShard}) {
    comm::run_local_ranks(2, [&](comm::Communicator& world) {
      SessionOptions options = {.model = test::tiny_gpt2(), .max_length = 4, .training = false};
      options.fsdp.strategy = strategy;
      Session session(world, test::on_cpu(), options);
      session.initialise(models::from_scratch(3));
      CHECK(session.evaluate(batch) > 0);
      const MemoryUsage usage = session.backend().ledger().usage();
      CHECK(usage.peak[static_cast<size_t>(MemoryCategory::kGradient)] == 0);
    });
  }
}

// fairseq's padding as a token of a text: no row's loss may depend on what comes later, and it is
// nothing to predict. Both means over the same two targets.
TEST_CASE("session: padding within a text is neither predicted nor predicts") {
  using Ids = std::vector<int32_t>;
  for (const auto mean : {LossMean::kTokens, LossMean::kRanks}) {
    comm::run_local_ranks(1, [&](comm::Communicator& world) {
      SessionOptions options = {.model = test::tiny_fairseq(), .max_length = 6};
      options.loss_mean = mean;
      options.model.embedding_dropout = options.model.attention_dropout = 0;
      options.model.residual_dropout = options.model.mlp_dropout = 0;
      options.fsdp.param_dtype = options.fsdp.reduce_dtype = DType::kF64;
      Session session(world, test::on_cpu(), options);
      session.initialise(models::from_scratch(3));
      const auto loss = [&](const Ids& tokens, const Ids& labels) {
        const Batch batch = make_batch({.length = 6, .tokens = tokens, .labels = labels},
                                       models::input_rules(options.model), 2);
        return session.train_step(batch, 0, 0).read().loss;
      };
      const Ids early = {-100, 1, 5, 9, 2, -100};  // of the row below
      const double expected = loss({1, 1, 5, 9, 2, 7}, {-100, -100, -100, 9, 2, -100});
      CHECK(expected > 0);
      CHECK(loss({1, 1, 5, 9, 2, 7}, early) == expected);
      CHECK(loss({1, 1, 5, 9, 2, 4}, early) == expected);
      // Each row begins anew.
      CHECK(loss({5, 9, 2, 7, 7, 7, 1, 5, 9, 2, 7, 7},
                 {-100, 9, 2, -100, -100, -100, 1, 5, -100, -100, -100, -100}) ==
            loss({5, 9, 2, 7, 7, 7, 1, 5, 9, 4, 4, 4},
                 {-100, 9, 2, -100, -100, -100, -100, -100, -100, -100, -100, -100}));
      CHECK(loss({5, 9, 2, 1, 1, 1}, {5, 9, 2, 1, 1, 1}) ==
            loss({5, 9, 2, 1, 1, 1}, {5, 9, 2, -100, -100, -100}));
    });
  }
}

}  // namespace
}  // namespace fsdp
