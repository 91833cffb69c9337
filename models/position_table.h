// Values that depend on positions only (rotary cosines and sines, ALiBi biases) as tensors.
#pragma once

#include <optional>
#include <vector>

#include "core/tensor.h"

namespace fsdp::models {

// `values` were computed in double; `dtype`: f32 or f64, what kernels read. `buffer_dtype`: rounded
// to it on the way (PyTorch FSDP's buffer_dtype, at use: frequencies are never rounded, which would
// lose positions). Empty: not.
Tensor position_table(Backend& backend, const Shape& shape, std::vector<double> values, DType dtype,
                      std::optional<DType> buffer_dtype);

}  // namespace fsdp::models
