// The sampler against PyTorch's DistributedSampler without shuffling; with it, that every epoch is
// a permutation, that all permutations are equally likely, and that ranks only divide the work.
// Requirements: S3.7.
#include "tools/data/sampler.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/io/json.h"
#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

using Items = std::vector<int64_t>;

// What one rank sees in an epoch.
Items epoch_of(const DistributedSampler& sampler, int64_t epoch, int rank, int world) {
  Items out;
  for (int64_t b = 0; b < sampler.batches_per_epoch(); ++b) {
    const Items part = sampler.batch(epoch, b, rank, world);
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

Items zero_to(int64_t n) {
  Items out(static_cast<size_t>(n));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

TEST_CASE("pad and drop_last are PyTorch's DistributedSampler") {
  const Json fixture = read_json_file(test::fixture_path("distributed_sampler.json"));
  int compared = 0;
  for (const Json& entry : fixture) {
    CAPTURE(entry.dump());
    const int64_t n = entry["n"];
    const int world = entry["world"];
    const bool drop = entry["drop_last"];
    const SamplerOptions options{.items = n,
                                 .batch = world,
                                 .shuffle = entry["shuffle"],
                                 .seed = entry["seed"],
                                 .last = drop ? LastBatch::kDropLast : LastBatch::kPad};
    if (drop && n < world) {  // every rank of PyTorch's is empty: here that is an error
      CHECK(test::contains(test::error_of([&] { DistributedSampler sampler(options); }),
                           "do not fill one batch"));
      continue;
    }
    const DistributedSampler sampler(options);
    for (int rank = 0; rank < world; ++rank) {
      const Items expected = entry["indices"][static_cast<size_t>(rank)].get<Items>();
      const Items got = epoch_of(sampler, entry["epoch"], rank, world);
      // Shuffled orders come from another generator: only the counts are the same.
      if (entry["shuffle"])
        CHECK(got.size() == expected.size());
      else
        CHECK(got == expected);
    }
    ++compared;
  }
  CHECK(compared >= 40);
}

// batch: of all ranks. DataLoader's last batch of a rank may be short.
TEST_CASE(
    "the rule of torch is DistributedSampler's, shuffled or not, with batches of several rows") {
  int compared = 0;
  for (const Json& entry : read_json_file(test::fixture_path("distributed_sampler.json"))) {
    CAPTURE(entry.dump());
    const int64_t n = entry["n"];
    const int world = entry["world"];
    const bool drop = entry["drop_last"];
    if (drop && n < world) continue;
    for (const int64_t rows : {1, 2, 3}) {  // of a rank
      const DistributedSampler sampler({.items = n,
                                        .batch = rows * world,
                                        .shuffle = entry["shuffle"],
                                        .seed = entry["seed"],
                                        .last = drop ? LastBatch::kDropLast : LastBatch::kShort,
                                        .rule = ShuffleRule::kTorch,
                                        .world = world});
      for (int rank = 0; rank < world; ++rank) {
        const Items expected = entry["indices"][static_cast<size_t>(rank)].get<Items>();
        CHECK(epoch_of(sampler, entry["epoch"], rank, world) == expected);
        const Items first = sampler.batch(entry["epoch"], 0, rank, world, rows);
        CHECK(first == Items(expected.begin(),
                             expected.begin() + std::min<ptrdiff_t>(rows, std::ssize(expected))));
      }
    }
    ++compared;
  }
  CHECK(compared >= 40);
  CHECK(test::contains(
      test::error_of([] {
        DistributedSampler sampler(
            {.items = 3, .batch = 2, .last = LastBatch::kPad, .rule = ShuffleRule::kTorch});
      }),
      "expected short or drop_last"));
}

TEST_CASE("an epoch that is never set: every epoch has the order of the first") {
  for (const ShuffleRule rule : {ShuffleRule::kFeistel, ShuffleRule::kTorch}) {
    SamplerOptions options{.items = 17, .batch = 4, .seed = 42, .rule = rule};
    const DistributedSampler set(options);
    options.set_epoch = false;
    const DistributedSampler unset(options);
    CHECK(epoch_of(unset, 3, 0, 1) == epoch_of(set, 0, 0, 1));
    CHECK(epoch_of(set, 3, 0, 1) != epoch_of(set, 0, 0, 1));
  }
}

// Sizes 5, 40 and 7, of which an epoch of 52 has about 29.7, 14.9 and 7.4.
SamplerOptions three_sources() {
  return {.items = 52, .batch = 6, .seed = 11, .sources = {{5, 4}, {40, 2}, {7, 1}}};
}

size_t source_of(int64_t item) { return item < 5 ? 0 : item < 45 ? 1 : 2; }

TEST_CASE("weighted sources: each goes through its own items before it begins again") {
  for (const bool shuffle : {true, false}) {
    SamplerOptions options = three_sources();
    options.shuffle = shuffle;
    const DistributedSampler sampler(options);
    CHECK(sampler.batches_per_epoch() == 9);
    std::vector<Items> drawn(3);
    for (int64_t epoch = 0; epoch < 20; ++epoch) {
      const Items items = epoch_of(sampler, epoch, 0, 1);
      CHECK(items.size() == 52);
      for (const int64_t item : items) drawn[source_of(item)].push_back(item);
    }
    const std::vector<int64_t> first = {0, 5, 45}, size = {5, 40, 7};
    const std::vector<double> share = {4.0 / 7, 2.0 / 7, 1.0 / 7};
    for (size_t s = 0; s < 3; ++s) {
      CHECK(static_cast<double>(drawn[s].size()) ==
            doctest::Approx(share[s] * 52 * 20).epsilon(0.02));
      std::set<Items> orders;
      const auto passes = std::ssize(drawn[s]) / size[s];
      for (int64_t pass = 0; pass < passes; ++pass) {
        const auto begin = drawn[s].begin() + pass * size[s];
        const Items order(begin, begin + size[s]);
        orders.insert(order);
        Items sorted = order;
        std::sort(sorted.begin(), sorted.end());
        for (int64_t& item : sorted) item -= first[s];
        REQUIRE(sorted == zero_to(size[s]));
      }
      // Of 7! orders and more; two of the 21 passes of the last source may be equal.
      if (shuffle && s > 0) CHECK(std::ssize(orders) + 1 >= passes);
      if (!shuffle) CHECK(orders.size() == 1);
    }
  }
}

TEST_CASE(
    "weighted sources: the ranks' items are those of one rank, at any batch asked for alone") {
  const DistributedSampler sampler(three_sources());
  for (const int64_t epoch : {0, 1, 7}) {
    for (int64_t batch = 0; batch < sampler.batches_per_epoch(); ++batch) {
      const Items all = DistributedSampler(three_sources()).batch(epoch, batch);
      for (const int world : {2, 3, 4}) {
        Items dealt(all.size());
        for (int rank = 0; rank < world; ++rank) {
          const Items mine = sampler.batch(epoch, batch, rank, world);
          for (size_t i = 0; i < mine.size(); ++i) {
            dealt.at(static_cast<size_t>(rank) + i * static_cast<size_t>(world)) = mine[i];
          }
        }
        CHECK(dealt == all);
      }
    }
  }
}

TEST_CASE("weighted sources: an epoch that is never set, another seed, what does not fit") {
  SamplerOptions options = three_sources();
  const DistributedSampler set(options);
  options.set_epoch = false;
  CHECK(epoch_of(DistributedSampler(options), 3, 0, 1) == epoch_of(set, 0, 0, 1));
  options = three_sources();
  options.seed = 12;
  CHECK(epoch_of(DistributedSampler(options), 0, 0, 1) != epoch_of(set, 0, 0, 1));
  options.items = 51;
  CHECK(test::error_of([&] { DistributedSampler other(options); }) ==
        "[sampler] items: expected 52, those of all sources, got 51");
  options = three_sources();
  options.rule = ShuffleRule::kTorch;
  CHECK(test::error_of([&] { DistributedSampler other(options); }) ==
        "data.shuffle_rule: expected feistel with data.sources, got torch");
}

TEST_CASE("an epoch is exhaustive and disjoint on any number of ranks") {
  for (const int64_t items : {1, 2, 7, 16, 100, 1000}) {
    for (const int64_t batch : {1, 3, 8}) {
      const DistributedSampler sampler({.items = items, .batch = batch, .seed = 5});
      for (const int world : {1, 2, 3}) {
        Items all;
        for (int rank = 0; rank < world; ++rank) {
          const Items part = epoch_of(sampler, 2, rank, world);
          all.insert(all.end(), part.begin(), part.end());
        }
        std::sort(all.begin(), all.end());
        CHECK(all == zero_to(items));
      }
    }
  }
}

TEST_CASE("a batch is the same on any number of ranks, row i at rank i modulo world") {
  const DistributedSampler sampler({.items = 23, .batch = 5, .seed = 1});
  for (int64_t b = 0; b < 5; ++b) {
    const Items whole = sampler.batch(3, b);
    CHECK(static_cast<int64_t>(whole.size()) == sampler.batch_size(b));
    for (const int world : {1, 2, 3, 4, 8}) {
      for (int rank = 0; rank < world; ++rank) {
        Items expected;
        for (size_t i = static_cast<size_t>(rank); i < whole.size();
             i += static_cast<size_t>(world)) {
          expected.push_back(whole[i]);
        }
        CHECK(sampler.batch(3, b, rank, world) == expected);
      }
    }
  }
  CHECK(sampler.batch_size(4) == 3);
}

TEST_CASE("in runs, run p of a batch goes to rank p modulo world") {
  const DistributedSampler sampler({.items = 40, .batch = 11, .seed = 1});
  const Items whole = sampler.batch(2, 1);
  for (const int64_t run : {1, 2, 3, 20}) {
    for (const int world : {1, 2, 3}) {
      std::vector<Items> expected(static_cast<size_t>(world));
      for (size_t i = 0; i < whole.size(); ++i) {
        expected[i / static_cast<size_t>(run) % expected.size()].push_back(whole[i]);
      }
      for (int rank = 0; rank < world; ++rank) {
        CHECK(sampler.batch(2, 1, rank, world, run) == expected[static_cast<size_t>(rank)]);
      }
    }
  }
}

TEST_CASE("pad wraps to the front of the epoch's order, drop_last leaves out its end") {
  const SamplerOptions options{.items = 10, .batch = 4, .seed = 9};
  SamplerOptions pad = options, drop = options;
  pad.last = LastBatch::kPad;
  drop.last = LastBatch::kDropLast;
  const Items order = epoch_of(DistributedSampler(options), 0, 0, 1);
  Items padded = order;
  padded.insert(padded.end(), order.begin(), order.begin() + 2);
  CHECK(epoch_of(DistributedSampler(pad), 0, 0, 1) == padded);
  CHECK(epoch_of(DistributedSampler(drop), 0, 0, 1) == Items(order.begin(), order.begin() + 8));
}

TEST_CASE("epochs and seeds give other orders, the same ones the same order") {
  const auto order = [](uint64_t seed, int64_t epoch) {
    return epoch_of(DistributedSampler({.items = 50, .batch = 7, .seed = seed}), epoch, 0, 1);
  };
  CHECK(order(0, 0) == order(0, 0));
  const std::set<Items> different{order(0, 0), order(0, 1), order(1, 0), order(1ull << 32, 0),
                                  zero_to(50)};
  CHECK(different.size() == 5);
}

TEST_CASE("a permutation at sizes around powers of four and beyond 32 bits") {
  for (const int64_t size : {1, 2, 255, 256, 257, 1023, 1024, 1025, 5000}) {
    const Permutation order(size, 3, 1);
    Items seen;
    for (int64_t i = 0; i < size; ++i) seen.push_back(order(i));
    std::sort(seen.begin(), seen.end());
    CHECK(seen == zero_to(size));
  }
  const int64_t large = (int64_t{1} << 40) + 12345;
  const Permutation order(large, 3, 1);
  std::set<int64_t> values;
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t value = order(i * (large / 1000));
    CHECK(value >= 0);
    CHECK(value < large);
    values.insert(value);
  }
  CHECK(values.size() == 1000);
}

// Chi-square over all 24 orders of 4 items and over the place of an item among 300.
TEST_CASE("every order is equally likely") {
  std::map<Items, int> orders;
  std::vector<int> places(30);
  constexpr int kTrials = 24 * 100;
  for (uint64_t trial = 0; trial < kTrials; ++trial) {
    const Permutation four(4, trial / 2, static_cast<int64_t>(trial % 2));
    ++orders[{four(0), four(1), four(2), four(3)}];
    ++places[static_cast<size_t>(Permutation(300, trial, 0)(17) / 10)];
  }
  CHECK(orders.size() == 24);
  double chi_orders = 0, chi_places = 0;
  for (const auto& [order, count] : orders) chi_orders += (count - 100.0) * (count - 100.0) / 100;
  for (const int count : places) chi_places += (count - 80.0) * (count - 80.0) / 80;
  CHECK(chi_orders < 49.7);  // 0.1 % of fair ones exceed it: 23 degrees of freedom
  CHECK(chi_places < 58.3);  // 29
}

TEST_CASE("what cannot be sampled") {
  CHECK(test::error_of([] { DistributedSampler sampler({.items = 0}); }) ==
        "[sampler] items: expected at least 1, got 0");
  CHECK(test::error_of([] { DistributedSampler sampler({.items = 1, .batch = 0}); }) ==
        "[sampler] batch: expected at least 1, got 0");
  const DistributedSampler sampler({.items = 5, .batch = 2});
  CHECK(test::error_of([&] { sampler.batch(0, 3); }) == "[sampler] batch 3 of 3");
}

}  // namespace
}  // namespace fsdp::data
