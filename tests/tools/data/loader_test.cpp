// What each rank gets at a step: together the global batch, alone resumable, counted without talk.
#include "tools/data/loader.h"

#include <algorithm>
#include <numeric>

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
  CHECK(batch.labels == batch.tokens);
  CHECK(batch.global_label_tokens == 4 * 9);
  CHECK(loader.batch(1, false).global_label_tokens == 4 * 10);  // a label for every token
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
