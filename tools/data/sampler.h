// Which items make up which batch, and which rank gets which of them: a pure function of (seed,
// epoch, batch number, rank), so resuming is asking for a later batch. Every item occurs once an
// epoch, whatever the number of ranks, which also does not change the batches themselves.
// Not here: what an item is (loader.h).
#pragma once

#include <cstdint>
#include <vector>

namespace fsdp::data {

// What becomes of an epoch's last batch when the items do not fill it: it stays short (some ranks
// may get nothing), is filled with the first items of the epoch's order again, or is left out.
// With one item per rank and batch, kPad and kDropLast are PyTorch's DistributedSampler.
enum class LastBatch : uint8_t { kShort, kPad, kDropLast };

// A permutation of 0 .. size-1 that needs no memory: keyed rounds of a Feistel network
// over the next power of four (at least 256), walked until the value lies below size.
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

struct SamplerOptions {
  int64_t items = 0;
  int64_t batch = 1;  // items per batch over all ranks
  bool shuffle = true;
  uint64_t seed = 0;
  LastBatch last = LastBatch::kShort;
};

class DistributedSampler {
 public:
  // Error when there is no item, or no full batch with kDropLast.
  explicit DistributedSampler(const SamplerOptions& options);

  int64_t batches_per_epoch() const;
  // All items of a batch in order, 0 <= batch < batches_per_epoch().
  std::vector<int64_t> batch(int64_t epoch, int64_t batch) const;
  // Those of one rank: numbers rank, rank + world, ... of the batch.
  std::vector<int64_t> batch(int64_t epoch, int64_t batch, int rank, int world) const;
  int64_t batch_size(int64_t batch) const;  // smaller than options.batch only for a short last one

 private:
  SamplerOptions options_;
};

}  // namespace fsdp::data
