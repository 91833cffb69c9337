// How many elements of a unit each rank would hold under PyTorch FSDP, whose padding differs from
// ours (core/flat_layout.h): for comparing plans. Nothing here is ever allocated.
#pragma once

#include <vector>

#include "core/shape.h"

namespace fsdp::tools {

// FSDP1, use_orig_params=False: one flat parameter, padded to a multiple of the ranks.
int64_t fsdp1_shard(const std::vector<Shape>& parameters, int ranks);
// FSDP1, use_orig_params=True: every parameter begins at a multiple of 16 bytes of the compute
// dtype.
int64_t fsdp1_original_shard(const std::vector<Shape>& parameters, int ranks,
                             int64_t element_bytes);

// FSDP2: every parameter is cut along its first dimension into pieces of equally many rows, of
// which the last ranks may have fewer or none; communication pads all to the first rank's.
struct Fsdp2Shards {
  int64_t padded = 0;
  std::vector<int64_t> held;  // by rank
};
Fsdp2Shards fsdp2_shards(const std::vector<Shape>& parameters, int ranks);

}  // namespace fsdp::tools
