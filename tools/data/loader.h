// The rows that one rank gets at one step. A pure function of the step: nothing to save, resuming
// is asking for a later step. The global batch of a step does not depend on the number of ranks.
// Not here: making the tokens (token_cache.h), copying them to a device (tools/train).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tools/data/batch.h"
#include "tools/data/packing.h"
#include "tools/data/sampler.h"

namespace fsdp::data {

struct LoaderOptions {
  std::span<const int32_t> tokens;  // the data set; must outlive the loader
  // Called before the tokens [first, first + count) are read; may refuse them by an Error.
  std::function<void(size_t first, size_t count)> before_use = nullptr;
  std::string name = "the data";  // of the data set, for errors
  int64_t sequence_length = 0;
  int64_t batch = 1;  // sequences per step over all ranks
  bool shuffle = true;
  uint64_t seed = 0;
  LastBatch last = LastBatch::kShort;
  int rank = 0;
  int world = 1;
};

class Loader {
 public:
  // Error for fewer tokens than one sequence, for more ranks than sequences in a batch, and for
  // fewer sequences than a batch when the last one must be full.
  explicit Loader(const LoaderOptions& options);

  int64_t sequences() const { return packing_.sequences(); }
  int64_t steps_per_epoch() const { return sampler_.batches_per_epoch(); }
  // This rank's rows of a step, counted from 0 over all epochs; none, maybe, of a short last batch.
  // `shifted_labels`: of the model; without a shift the first token of a row is predicted too.
  Batch batch(int64_t step, bool shifted_labels = true) const;

 private:
  LoaderOptions options_;
  Packing packing_;
  DistributedSampler sampler_;
};

}  // namespace fsdp::data
