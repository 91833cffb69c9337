// The tensors of a call's arguments one by one, each with its role, as the arguments' visit() names
// them (core/kernel_args.h).
#pragma once

#include <utility>
#include <vector>

#include "core/layer_values.h"

namespace fsdp {

// The visitor that changes nothing: f(role, tensor) of each tensor that is given.
template <typename F>
class EachTensor {
 public:
  explicit EachTensor(F f) : f_(std::move(f)) {}

  const Tensor& operator()(const TensorRole& role, const Tensor& tensor) {
    f_(role, tensor);
    return tensor;
  }
  Tensor& operator()(const TensorRole& role, Tensor& tensor) {
    f_(role, tensor);
    return tensor;
  }
  template <typename T>
  T* operator()(const TensorRole& role, T* tensor) {
    if (tensor) f_(role, *tensor);
    return tensor;
  }
  HeadView operator()(const TensorRole& role, const HeadView& view) {
    return f_(role, *view.tensor), view;
  }
  template <typename T>
  const std::vector<T>& list(const std::vector<T>& values) {
    return values;
  }

 private:
  F f_;
};
template <typename Args, typename F>
void for_each_tensor(const Args& args, F f) {
  EachTensor<F> visitor(std::move(f));
  static_cast<void>(args.visit(visitor));
}

}  // namespace fsdp
