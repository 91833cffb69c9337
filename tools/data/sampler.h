// Which items a batch has, and which rank gets which item. Both are pure functions of (seed, epoch,
// batch number, rank), so a resumed run only has to ask for a later batch. Every item occurs once
// in an epoch, but of several weighted sources. The batches are the same for any number of ranks,
// but for ShuffleRule::kTorch. Not here: what an item is (loader.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tools/data/mixture.h"

namespace fsdp::data {

// What happens to the last batch of an epoch when there are too few items for it. kShort: it stays
// short, and some ranks may get nothing. kPad: the first items of the epoch fill it up. kDropLast:
// it is left out. With one item per rank and batch, kPad and kDropLast do what PyTorch's
// DistributedSampler does.
enum class LastBatch : uint8_t { kShort, kPad, kDropLast };

// A permutation of 0 .. size-1 that needs no memory: a Feistel network with a key permutes the
// numbers below the next power of four (at least 256). It is applied again until the result is
// below `size` (cycle walking).
class Permutation {
 public:
  Permutation(int64_t size, uint64_t seed, int64_t epoch);
  int64_t operator()(int64_t index) const;

 private:
  uint64_t encrypt(uint64_t value) const;

  uint64_t size_;
  uint64_t seed_;
  uint32_t epoch_;
  int half_bits_ = 0;
};

// kFeistel: Permutation. kTorch: what torch's DistributedSampler and DataLoader do on so many
// ranks: torch.randperm seeded with seed + epoch; an epoch is filled up with its first items to a
// multiple of the ranks, or with kDropLast cut to one; the last batch stays short. It keeps the
// order of an epoch, four bytes an item.
enum class ShuffleRule : uint8_t { kFeistel, kTorch };
inline constexpr std::array kShuffleRules = {ShuffleRule::kFeistel, ShuffleRule::kTorch};
constexpr std::string_view name_of(ShuffleRule rule) {
  return rule == ShuffleRule::kTorch ? "torch" : "feistel";
}

// [Note: an epoch of several sources]
// Items are numbered through all sources. An epoch has as many items as all sources together, and
// batches cut it as any other; its items are draws of a Mixture, whose sample n is place n % items
// of epoch n / items. A source goes through all of its own items, in an order of its own, before it
// goes through them again: its draw k is place k % its items of its own epoch k / its items. So an
// epoch of the run has items of a large weight several times, and not all items of a small weight.
struct SamplerOptions {
  int64_t items = 0;  // of all sources
  int64_t batch = 1;  // items per batch over all ranks
  bool shuffle = true;
  uint64_t seed = 0;
  LastBatch last = LastBatch::kShort;
  ShuffleRule rule = ShuffleRule::kFeistel;
  int world = 1;                             // of kTorch, which depends on it
  bool set_epoch = true;                     // false: every epoch has the order of the first
  std::vector<WeightedSource> sources = {};  // not with kTorch; none, or one: all items once
};

// For one thread at a time.
class DistributedSampler {
 public:
  // Error when there is no item, when kDropLast leaves no batch, for kTorch with kPad, and for
  // sources that do not have `items` together.
  explicit DistributedSampler(const SamplerOptions& options);

  int64_t batches_per_epoch() const;
  // All items of a batch in order, 0 <= batch < batches_per_epoch().
  std::vector<int64_t> batch(int64_t epoch, int64_t batch) const;
  // The items of one rank. Runs of `run` items are dealt to the ranks in turn: with runs of one,
  // and always with kTorch, numbers rank, rank + world, ... of the batch.
  std::vector<int64_t> batch(int64_t epoch, int64_t batch, int rank, int world,
                             int64_t run = 1) const;
  int64_t batch_size(int64_t batch) const;  // smaller than options.batch only for a short last one
  int64_t items() const { return options_.items; }

 private:
  int64_t items_of_epoch() const;
  int64_t item_at(int64_t place, int64_t epoch) const;  // of the epoch's order
  int64_t item_of_sources(int64_t sample) const;

  SamplerOptions options_;
  std::optional<Mixture> mixture_;  // of several sources
  mutable int64_t torch_epoch_ = -1;
  mutable std::vector<uint32_t> torch_order_;  // of torch_epoch_
};

}  // namespace fsdp::data
