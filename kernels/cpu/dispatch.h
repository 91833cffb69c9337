// Type dispatch of the CPU kernels beyond core/dtype.h.
#pragma once

#include "core/tensor.h"

namespace fsdp::cpu {

// f(TypeTag<float>) or f(TypeTag<double>); Error for a type that nothing is accumulated in.
template <typename F>
decltype(auto) dispatch_accumulation(DType dtype, std::string_view op, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(TypeTag<float>{});
    case DType::kF64:
      return f(TypeTag<double>{});
    default:
      fail("[{}] dtype: expected f32 or f64, got {}", op, name_of(dtype));
  }
}

template <typename T>
T* data_or_null(const Tensor* tensor) {
  return tensor ? tensor->data_as<T>() : nullptr;
}

}  // namespace fsdp::cpu
