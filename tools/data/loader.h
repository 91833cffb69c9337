// The rows that one rank gets at one step. They are a pure function of the step, so there is no
// state to save, and a resumed run only has to ask for a later step. The global batch of a step
// does not depend on the number of ranks. Not here: making the tokens (token_cache.h), copying them
// to a device (tools/engine/session.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tools/data/sampler.h"
#include "tools/data/sequences.h"
#include "tools/engine/batch.h"

namespace fsdp::data {

struct LoaderOptions {
  std::span<const int32_t> tokens = {};  // the data set; must outlive the loader
  // Called before tokens [first, first + count) are read. May throw an Error to refuse them.
  std::function<void(size_t first, size_t count)> before_use = nullptr;
  // Instead of `tokens` as a stream.
  std::shared_ptr<const Sequences> sequences = nullptr;
  std::string name = "the data";  // names the data set in errors
  int64_t sequence_length = 0;
  // A batch is as long as its longest sequence: that of all ranks, so that it is the same on any
  // number of them. Else as long as sequence_length.
  bool to_longest = false;
  int64_t batch = 1;  // sequences per step over all ranks
  bool shuffle = true;
  uint64_t seed = 0;
  LastBatch last = LastBatch::kShort;
  ShuffleRule rule = ShuffleRule::kFeistel;
  bool set_epoch = true;                     // see SamplerOptions
  std::vector<WeightedSource> sources = {};  // that `sequences` joins; see SamplerOptions
  int64_t rows_per_pass = 0;                 // see Batch; 0: each rank gets every world-th row
  int rank = 0;
  int world = 1;
};

// Of a batch of all ranks.
struct BatchShape {
  int64_t rows = 0, length = 0;
  bool operator==(const BatchShape&) const = default;
};

class Loader {
 public:
  // Error when the tokens do not fill one sequence, when a batch has fewer sequences than there are
  // ranks, and when kDropLast leaves no batch.
  explicit Loader(const LoaderOptions& options);

  int64_t sequences() const { return sequences_->count(); }
  // Of the first `count` sequences, in their own order: see count_untrained.
  Untrained untrained(int64_t count, const InputRules& rules) const {
    return count_untrained(*sequences_, count, options_.sequence_length, rules);
  }
  int64_t steps_per_epoch() const { return sampler_.batches_per_epoch(); }
  int64_t samples_after(int64_t steps) const;  // of all ranks, over all epochs
  std::string summary() const { return sequences_->summary(); }
  BatchShape shape_of(int64_t step) const;  // of its batch
  // The batches of the first `steps` steps that take most memory: the longest whole batch and,
  // where it is longer, the longest short one.
  std::vector<BatchShape> largest_batches(int64_t steps) const;
  // This rank's rows of a step, counted from 0 over all epochs; none, maybe, of a short last batch.
  // `rules`: of the model.
  LabelledRows rows(int64_t step, const InputRules& rules = {}) const;
  // The same, ready for the model.
  Batch batch(int64_t step, const InputRules& rules = {}) const;

 private:
  // Samples of the batch of all ranks.
  std::vector<int64_t> samples_of(int64_t step) const;
  int64_t length_of(const std::vector<int64_t>& samples) const;  // of a batch of these

  LoaderOptions options_;
  std::shared_ptr<const Sequences> sequences_;
  DistributedSampler sampler_;
};

}  // namespace fsdp::data
