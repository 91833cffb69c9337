// Shape and dtype checks shared by the op families, with the project's error form.
#pragma once

#include <string_view>

#include "core/tensor.h"

namespace fsdp::ops {

inline void check_shape(std::string_view op, std::string_view what, const Shape& got,
                        const Shape& expected) {
  FSDP_CHECK(got == expected, "[{}] {}: expected {}, got {}", op, what, expected.str(), got.str());
}

inline void check_dtype(std::string_view op, std::string_view what, DType got, DType expected) {
  FSDP_CHECK(got == expected, "[{}] {}: expected {}, got {}", op, what, name_of(expected),
             name_of(got));
}

// Shape of x with its last extent replaced.
inline Shape with_last(const Shape& shape, int64_t last) {
  std::vector<int64_t> extents = shape.extents();
  extents.back() = last;
  return Shape(extents);
}

// The memory of a gradient that nobody else holds may be overwritten; else a fresh tensor.
inline Tensor reuse_or_allocate(const Tensor& gradient) {
  if (gradient.storage().use_count() == 1) return gradient.detached();
  return Tensor::empty(gradient.backend(), gradient.shape(), gradient.dtype());
}

}  // namespace fsdp::ops
