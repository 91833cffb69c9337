// What each rank gets at a step: together the global batch, alone resumable, counted without talk.
// Requirements: S0.6.
#include "tools/data/loader.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

std::vector<int32_t> stream_of(size_t count) {
  std::vector<int32_t> out(count);
  std::iota(out.begin(), out.end(), 0);
  return out;
}

TEST_CASE("rows are the sampled sequences, labels the same tokens") {
  const std::vector<int32_t> stream = stream_of(103);
  const Loader loader({.tokens = stream, .sequence_length = 10, .batch = 4, .shuffle = false});
  CHECK(loader.sequences() == 10);
  CHECK(loader.steps_per_epoch() == 3);
  const Batch batch = loader.batch(1);
  CHECK(batch.rows == 4);
  CHECK(batch.samples == std::vector<int64_t>{4, 5, 6, 7});
  CHECK(batch.tokens == std::vector<int32_t>(stream.begin() + 40, stream.begin() + 80));
  CHECK(loader.rows(1).labels == batch.tokens);
  CHECK(batch.global_label_tokens == 4 * 9);
  CHECK(loader.batch(1, {.shifted_labels = false}).global_label_tokens ==
        4 * 10);  // a label for every token
}

TEST_CASE("tokens are announced before they are read") {
  std::vector<int32_t> stream(50);
  const Loader loader({.tokens = stream,
                       .before_use =
                           [&](size_t first, size_t count) {
                             FSDP_CHECK(first != 30, "damaged");
                             std::fill_n(stream.begin() + static_cast<std::ptrdiff_t>(first), count,
                                         static_cast<int32_t>(first));
                           },
                       .sequence_length = 10,
                       .batch = 2,
                       .shuffle = false});
  const Batch batch = loader.batch(0);
  CHECK(batch.tokens[0] == 0);
  CHECK(batch.tokens[19] == 10);
  CHECK(stream[20] == 0);
  CHECK(test::error_of([&] { loader.batch(1); }) == "damaged");
}

TEST_CASE("the ranks' rows are those of one rank, on any number of ranks and in every epoch") {
  const std::vector<int32_t> stream = stream_of(13 * 5);
  LoaderOptions options{.tokens = stream, .sequence_length = 5, .batch = 4, .seed = 3};
  const Loader single(options);
  for (const int world : {2, 3, 4}) {
    for (int64_t step = 0; step < 10; ++step) {
      const Batch whole = single.batch(step);
      std::vector<int64_t> samples(whole.samples.size());
      for (int rank = 0; rank < world; ++rank) {
        options.rank = rank;
        options.world = world;
        const Batch part = Loader(options).batch(step);
        CHECK(part.rows == static_cast<int64_t>(part.samples.size()));
        CHECK(part.tokens.size() == part.samples.size() * 5);
        CHECK(part.global_label_tokens == whole.rows * 4);
        for (size_t i = 0; i < part.samples.size(); ++i) {
          samples[static_cast<size_t>(rank) + i * static_cast<size_t>(world)] = part.samples[i];
          CHECK(part.tokens[i * 5] == part.samples[i] * 5);
        }
      }
      CHECK(samples == whole.samples);
    }
  }
}

TEST_CASE("passes: their numbers and rows are the same on any number of ranks") {
  const std::vector<int32_t> stream = stream_of(13 * 5);
  LoaderOptions options{
      .tokens = stream, .sequence_length = 5, .batch = 8, .seed = 3, .rows_per_pass = 3};
  const Loader single(options);
  CHECK(single.batch(0).passes == 3);
  CHECK(single.batch(1).passes == 2);  // five rows are left
  for (const int world : {2, 3}) {
    for (int64_t step = 0; step < 4; ++step) {
      const Batch whole = single.batch(step);
      for (int rank = 0; rank < world; ++rank) {
        options.rank = rank;
        options.world = world;
        const Batch part = Loader(options).batch(step);
        CHECK(part.rows_per_pass == 3);
        CHECK(part.passes == whole.passes);
        int64_t rows = 0;
        for (int micro_step = 0; micro_step * world < whole.passes; ++micro_step) {
          const Batch mine = rows_of(part, rows_of_part(part, micro_step, 9));
          const int64_t pass = micro_step * world + rank;
          CHECK((mine.rows > 0) == (rank < ranks_with_pass(part, micro_step, world)));
          if (pass >= whole.passes) continue;
          const Batch expected = rows_of(whole, rows_of_part(whole, static_cast<int>(pass), 9));
          CHECK(mine.tokens == expected.tokens);
          rows += mine.rows;
        }
        CHECK(rows == part.rows);
      }
    }
  }
}

// Rows of 1 + i * 3 % 8 tokens.
struct Examples {
  std::vector<int32_t> tokens;
  std::vector<ExampleSpan> spans;
  explicit Examples(int rows) {
    for (int i = 0; i < rows; ++i) {
      tokens.insert(tokens.end(), static_cast<size_t>(1 + i * 3 % 8), i + 1);
      spans.push_back({tokens.size()});
    }
  }
  LoaderOptions options(PadSide side = PadSide::kRight) const {
    return {.sequences = example_sequences({.tokens = tokens, .examples = spans}, 6,
                                           {.side = side, .pad_token = 99}),
            .sequence_length = 6,
            .to_longest = true,
            .batch = 4,
            .seed = 3};
  }
};

TEST_CASE(
    "a batch is as long as the longest row of all ranks, and the same on any number of them") {
  const Examples examples(11);
  for (const PadSide side : {PadSide::kRight, PadSide::kLeft}) {
    LoaderOptions options = examples.options(side);
    const Loader single(options);
    std::set<int64_t> lengths;
    for (int64_t step = 0; step < 6; ++step) {
      const Batch whole = single.batch(step);
      lengths.insert(whole.length);
      int64_t longest = 2, labels = 0;
      for (int64_t row = 0; row < whole.rows; ++row) {
        const auto sample = whole.samples[static_cast<size_t>(row)];
        const int64_t tokens = std::min<int64_t>(1 + sample * 3 % 8, 6);
        longest = std::max(longest, tokens);
        labels += tokens - 1;
        const auto begin = whole.tokens.begin() + row * whole.length;
        CHECK(std::count(begin, begin + whole.length, sample + 1) == tokens);
        CHECK(std::count(begin, begin + whole.length, 99) == whole.length - tokens);
      }
      CHECK(whole.length == longest);
      CHECK(whole.global_label_tokens == labels);
      CHECK(whole.mask.size() == (side == PadSide::kLeft ? whole.tokens.size() : 0));
      for (const int world : {2, 3, 4}) {
        for (int rank = 0; rank < world; ++rank) {
          options.rank = rank;
          options.world = world;
          const Batch part = Loader(options).batch(step);
          CHECK(part.length == whole.length);
          CHECK(part.global_label_tokens == labels);
          for (size_t i = 0; i < part.samples.size(); ++i) {
            const size_t row = static_cast<size_t>(rank) + i * static_cast<size_t>(world);
            CHECK(part.samples[i] == whole.samples[row]);
            const auto length = static_cast<std::ptrdiff_t>(part.length);
            CHECK(std::equal(part.targets.begin() + static_cast<std::ptrdiff_t>(i) * length,
                             part.targets.begin() + static_cast<std::ptrdiff_t>(i + 1) * length,
                             whole.targets.begin() + static_cast<std::ptrdiff_t>(row) * length));
          }
        }
      }
    }
    CHECK(lengths.size() > 1);
  }
}

TEST_CASE("the batches that take most: the longest whole one, a short one where it is longer") {
  const Examples examples(11);
  for (const uint64_t seed : {0, 1, 2, 3, 4, 5, 6, 7}) {
    LoaderOptions options = examples.options();
    options.seed = seed;
    const Loader loader(options);
    for (const int64_t steps : {1, 3, 30}) {
      BatchShape whole{4, 0}, last{3, 0};
      for (int64_t step = 0; step < steps; ++step) {
        const Batch batch = loader.batch(step);
        BatchShape& shape = batch.rows == 4 ? whole : last;
        shape.length = std::max(shape.length, batch.length);
        CHECK(loader.shape_of(step) == BatchShape{batch.rows, batch.length});
      }
      std::vector<BatchShape> expected = {whole};
      if (last.length > whole.length) expected.push_back(last);
      CHECK(loader.largest_batches(steps) == expected);
    }
  }
  LoaderOptions options = examples.options();
  options.to_longest = false;
  CHECK(Loader(options).largest_batches(9) == std::vector<BatchShape>{{4, 6}});
  CHECK(Loader(options).batch(0).length == 6);
  CHECK(Loader(options).shape_of(2) == BatchShape{3, 6});
}

TEST_CASE("the rule of torch: ranks are filled up, each makes passes of its own rows") {
  const std::vector<int32_t> stream = stream_of(13 * 5);
  LoaderOptions options{.tokens = stream,
                        .sequence_length = 5,
                        .batch = 8,
                        .seed = 42,
                        .rule = ShuffleRule::kTorch,
                        .rows_per_pass = 2,
                        .world = 2};
  int64_t rows = 0;
  for (int rank = 0; rank < 2; ++rank) {
    options.rank = rank;
    const Loader loader(options);
    CHECK(loader.steps_per_epoch() == 2);
    CHECK(loader.samples_after(2) == 14);  // 13, and one again
    for (int64_t step = 0; step < 2; ++step) {
      const Batch batch = loader.batch(step);
      CHECK(batch.passes == 4);
      CHECK(ranks_with_pass(batch, 1, 2) == 2);
      CHECK(batch.rows == (step == 0 ? 4 : 3));
      CHECK(batch.global_label_tokens == (step == 0 ? 8 : 6) * 4);
      rows += rows_of_part(batch, 0, 2).count + rows_of_part(batch, 1, 2).count;
    }
  }
  CHECK(rows == 14);
}

TEST_CASE("the last batch of an epoch is short; a rank may get nothing of it") {
  const std::vector<int32_t> stream = stream_of(13 * 5);
  const Loader second({.tokens = stream, .sequence_length = 5, .batch = 4, .rank = 1, .world = 2});
  const Batch last = second.batch(3);
  CHECK(last.rows == 0);
  CHECK(last.tokens.empty());
  CHECK(last.global_label_tokens == 4);
  CHECK(second.batch(4).rows == 2);
}

TEST_CASE("resuming is asking for a later step") {
  const std::vector<int32_t> stream = stream_of(500);
  const LoaderOptions options{.tokens = stream, .sequence_length = 7, .batch = 3, .seed = 11};
  const Loader running(options);
  std::vector<Batch> seen;
  for (int64_t step = 0; step < 60; ++step) seen.push_back(running.batch(step));
  for (const int64_t step : {59, 24, 0}) {
    const Batch again = Loader(options).batch(step);
    CHECK(again.tokens == seen[static_cast<size_t>(step)].tokens);
    CHECK(again.samples == seen[static_cast<size_t>(step)].samples);
  }
}

TEST_CASE("too few tokens, too many ranks") {
  const std::vector<int32_t> stream = stream_of(100);
  CHECK(test::error_of([&] { Loader loader({.tokens = stream, .sequence_length = 256}); }) ==
        "the data has 100 tokens, fewer than one sequence of 256 (data.sequence_length)");
  for (const LastBatch last : {LastBatch::kPad, LastBatch::kDropLast}) {
    const auto make = [&] {
      Loader({.tokens = stream,
              .name = "a.txt",
              .sequence_length = 10,
              .batch = int64_t{1} << 60,
              .last = last});
    };
    CHECK(test::error_of(make) ==
          "data.last_batch: a.txt has 10 sequences, which do not fill one batch of "
          "1152921504606846976 (train.batch); with short, every step takes them all");
  }
  CHECK(test::error_of([&] {
          Loader loader({.tokens = stream, .sequence_length = 10, .batch = 3, .world = 4});
        }) == "train.batch: 3 sequences cannot be dealt to 4 ranks; expected at least 4");
  CHECK(test::error_of([&] { Loader loader({.tokens = stream, .sequence_length = 1}); }) ==
        "data.sequence_length: expected at least 2, got 1");
}

// A run that is stopped and goes on with other ranks, in the middle of an epoch: every step takes
// its rows from the same order.
TEST_CASE("each sample comes once in an epoch, however many ranks take each step") {
  const std::vector<int32_t> stream = stream_of(10 * 57 + 3);
  for (const LastBatch last : {LastBatch::kShort, LastBatch::kDropLast}) {
    const auto loader = [&](int rank, int world) {
      return Loader({.tokens = stream,
                     .sequence_length = 10,
                     .batch = 8,
                     .seed = 3,
                     .last = last,
                     .rank = rank,
                     .world = world});
    };
    const int64_t steps = loader(0, 1).steps_per_epoch();
    for (const int64_t epoch : {0, 1, 5}) {
      std::vector<int64_t> audit;
      for (int64_t step = 0; step < steps; ++step) {
        const int world = std::vector<int>{1, 2, 3, 4, 6, 8}[static_cast<size_t>(step) % 6];
        for (int rank = 0; rank < world; ++rank) {
          const Batch batch = loader(rank, world).batch(epoch * steps + step);
          audit.insert(audit.end(), batch.samples.begin(), batch.samples.end());
        }
        const auto seen = static_cast<int64_t>(audit.size());
        const int64_t before = loader(0, 1).samples_after(epoch * steps);
        CHECK(loader(0, 1).samples_after(epoch * steps + step + 1) - before == seen);
      }
      std::sort(audit.begin(), audit.end());
      CHECK(std::adjacent_find(audit.begin(), audit.end()) == audit.end());
      CHECK(audit.size() == (last == LastBatch::kShort ? 57 : 56));
    }
  }
}

}  // namespace
}  // namespace fsdp::data
