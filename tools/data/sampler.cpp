// The order of the items. Contract: tools/data/sampler.h.
#include "tools/data/sampler.h"

#include <algorithm>

#include "core/error.h"
#include "core/rng.h"
#include "tools/data/permutations.h"

namespace fsdp::data {
namespace {

// Rounds of the Feistel network. Luby and Rackoff (1988) need four for large halves; small ones
// mix less per round.
constexpr uint32_t kRounds = 8;
constexpr int kMinHalfBits = 4;

}  // namespace

Permutation::Permutation(int64_t size, uint64_t seed, int64_t epoch)
    : size_(static_cast<uint64_t>(size)), seed_(seed), epoch_(static_cast<uint32_t>(epoch)) {
  half_bits_ = kMinHalfBits;
  while ((uint64_t{1} << (2 * half_bits_)) < size_) ++half_bits_;
}

// A bijection of 0 .. 4^half_bits - 1: each round swaps the halves and changes one by a function of
// the other, which can be undone.
uint64_t Permutation::encrypt(uint64_t value) const {
  const uint32_t mask = static_cast<uint32_t>((uint64_t{1} << half_bits_) - 1);
  uint32_t left = static_cast<uint32_t>(value >> half_bits_);
  uint32_t right = static_cast<uint32_t>(value) & mask;
  for (uint32_t round = 0; round < kRounds; ++round) {
    const Philox4x32 words =
        philox4x32({right, round, epoch_, 0x73686666u},  // "shff": unlike other users of the seed
                   {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
    const uint32_t changed = left ^ (words[0] & mask);
    left = right;
    right = changed;
  }
  return (uint64_t{left} << half_bits_) | right;
}

// Values beyond size are encrypted again until one lies below: still a bijection of the values
// below (following a cycle of the larger one), after fewer than four steps on average.
int64_t Permutation::operator()(int64_t index) const {
  uint64_t value = static_cast<uint64_t>(index);
  do {
    value = encrypt(value);
  } while (value >= size_);
  return static_cast<int64_t>(value);
}

DistributedSampler::DistributedSampler(const SamplerOptions& options) : options_(options) {
  FSDP_CHECK(options.batch >= 1, "[sampler] batch: expected at least 1, got {}", options.batch);
  FSDP_CHECK(options.items >= 1, "[sampler] items: expected at least 1, got {}", options.items);
  FSDP_CHECK(options.rule != ShuffleRule::kTorch || options.last != LastBatch::kPad,
             "data.last_batch: expected short or drop_last with data.shuffle_rule: torch, got pad");
  FSDP_CHECK(
      options.rule != ShuffleRule::kTorch || options.batch % options.world == 0,
      "train.batch: expected a multiple of the {} ranks with data.shuffle_rule: torch, got {}",
      options.world, options.batch);
  FSDP_CHECK(batches_per_epoch() >= 1,
             "[sampler] {} items do not fill one batch of {}, and drop_last drops the rest",
             options.items, options.rule == ShuffleRule::kTorch ? options.world : options.batch);
  if (options.sources.size() <= 1) return;
  FSDP_CHECK(options.rule != ShuffleRule::kTorch,
             "data.shuffle_rule: expected feistel with data.sources, got torch");
  int64_t items = 0;
  for (const WeightedSource& source : options.sources) items += source.items;
  FSDP_CHECK(items == options.items, "[sampler] items: expected {}, those of all sources, got {}",
             items, options.items);
  mixture_.emplace(options.sources, options.seed);
}

int64_t DistributedSampler::items_of_epoch() const {
  if (options_.rule != ShuffleRule::kTorch) return options_.items;
  const int64_t world = options_.world;
  const bool drop = options_.last == LastBatch::kDropLast;
  return (options_.items + (drop ? 0 : world - 1)) / world * world;
}

int64_t DistributedSampler::batches_per_epoch() const {
  const bool torch = options_.rule == ShuffleRule::kTorch;
  const bool drop = options_.last == LastBatch::kDropLast && !torch;
  return (items_of_epoch() + (drop ? 0 : options_.batch - 1)) / options_.batch;
}

int64_t DistributedSampler::batch_size(int64_t batch) const {
  if (options_.last == LastBatch::kPad) return options_.batch;
  return std::min(options_.batch, items_of_epoch() - batch * options_.batch);
}

// [Note: an epoch of several sources]
int64_t DistributedSampler::item_of_sources(int64_t sample) const {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15u;  // sources of one size have orders of their own
  const Mixture::Draw draw = mixture_->draw(sample);
  int64_t first = 0;
  for (size_t s = 0; s < draw.source; ++s) first += options_.sources[s].items;
  const int64_t size = options_.sources[draw.source].items;
  const int64_t place = draw.number % size;
  if (!options_.shuffle) return first + place;
  return first + Permutation(size, options_.seed + draw.source * kOdd, draw.number / size)(place);
}

std::vector<int64_t> DistributedSampler::batch(int64_t epoch, int64_t batch) const {
  return this->batch(epoch, batch, 0, 1);
}

int64_t DistributedSampler::item_at(int64_t place, int64_t epoch) const {
  const int64_t inside = place % options_.items;  // what fills up wraps around
  const int64_t order = options_.set_epoch ? epoch : 0;
  if (mixture_) return item_of_sources(order * options_.items + inside);
  if (!options_.shuffle) return inside;
  if (options_.rule == ShuffleRule::kFeistel) {
    return Permutation(options_.items, options_.seed, order)(inside);
  }
  if (torch_epoch_ != order) {
    torch_order_ = torch_permutation(options_.items, options_.seed + static_cast<uint64_t>(order));
    torch_epoch_ = order;
  }
  return torch_order_[static_cast<size_t>(inside)];
}

std::vector<int64_t> DistributedSampler::batch(int64_t epoch, int64_t batch, int rank, int world,
                                               int64_t run) const {
  FSDP_CHECK(batch >= 0 && batch < batches_per_epoch(), "[sampler] batch {} of {}", batch,
             batches_per_epoch());
  if (options_.rule == ShuffleRule::kTorch) run = 1;
  std::vector<int64_t> out;
  for (int64_t begin = rank * run; begin < batch_size(batch); begin += world * run) {
    for (int64_t i = begin; i < std::min(begin + run, batch_size(batch)); ++i) {
      out.push_back(item_at(batch * options_.batch + i, epoch));
    }
  }
  return out;
}

}  // namespace fsdp::data
