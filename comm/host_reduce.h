// The arithmetic of reductions on host memory: sources in rank order, accumulated in the
// accumulation dtype, rounded once on store.
#pragma once

#include <span>

#include "comm/communicator.h"

namespace fsdp::comm {

// out[i] = op over sources[0][i], sources[1][i], ...; integers accumulate in their own type, a NaN
// wins a maximum. At least two sources; `out` may be one of them, the others do not overlap it.
void reduce_in_order(DType dtype, ReduceOp op, std::span<const std::byte* const> sources,
                     std::byte* out, int64_t numel);

// out[i] = start[i] + sources[0][i] + sources[1][i] + ..., in this order; `start` null: it begins
// with sources[0]. start and out are in the accumulation dtype of `dtype`, and may be one; out may
// be a source of that dtype. At least one source.
void add_in_order(DType dtype, const std::byte* start, std::span<const std::byte* const> sources,
                  std::byte* out, int64_t numel);

}  // namespace fsdp::comm
