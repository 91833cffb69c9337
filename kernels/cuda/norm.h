// What norm.cu and norm_backward.cu share: how much of a row its threads hold in registers.
#pragma once

#include "kernels/cuda/elements.h"
#include "kernels/cuda/reduce.h"

namespace fsdp::cuda {

// Columns of a row that a group holds in registers, as 16-byte packets.
template <typename T>
constexpr int64_t columns_of(int group, int packets) {
  return int64_t{group} * packets * run_of<T>();
}

}  // namespace fsdp::cuda
