// A model that is used as it is, by eval and generate: what a rank needs for it, predicted without
// bytes, and the end of a command that needs more than there is, before the weights are read.
// Not here: training (predicted_run.h, memory_limit.h).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tools/data/loader.h"
#include "tools/generate/generation.h"
#include "tools/launch/launch.h"
#include "tools/predict/meta_run.h"
#include "tools/train/placed_session.h"

namespace fsdp::tools {

struct ModelUse {
  int64_t rows = 1;  // at a time, over all ranks
  // What the command does with its session. `rows`: at a time, at most; a smaller --batch.
  std::function<void(MetaRun& run, int64_t rows)> work;
  size_t row_bytes = 0;   // of the host's memory besides, for a row of a rank
  bool has_dtype = true;  // --dtype of the command is that of the weights in memory
};
// Batches of an evaluation, the largest first. `rows_per_pass`: see Batch; 0: they have no passes.
ModelUse use_of_batches(std::vector<data::BatchShape> shapes, int64_t rows_per_pass = 0,
                        const SyntheticRows& kind = {});
// As generate_in_batches() does it. `vocabulary`: the model's.
ModelUse use_of_generation(const GenerationOptions& options,
                           const std::vector<std::vector<int32_t>>& prompts, int64_t batch,
                           int64_t vocabulary);

// Bytes of rank 0, whose need no other rank's exceeds.
size_t bytes_of_use(const PlacedOptions& session, int ranks, const ModelUse& use);
// AgreedError with the status of what does not fit: what is needed, the limit, and what makes it
// fit. Collective.
void check_fits(const RankContext& rank, const PlacedOptions& session, const ModelUse& use);

}  // namespace fsdp::tools
