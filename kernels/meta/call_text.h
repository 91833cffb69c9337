// How the functions of kernel_call.h describe a call: the extents of its tensors, in order, then in
// words what else its time depends on. Included by kernel_call*.cpp alone.
#pragma once

#include <fmt/format.h>

#include "kernels/meta/kernel_call.h"

namespace fsdp::meta {

class CallText {
 public:
  using Content = TensorForm::Content;

  explicit CallText(std::string_view kernel) { call_.kernel = kernel; }

  // A tensor whose extents say how much work there is.
  TensorForm of(const Tensor& tensor, bool from_memory = true) {
    if (!call_.shape.empty()) call_.shape += ", ";
    for (int i = 0; i < tensor.shape().rank(); ++i) {
      fmt::format_to(std::back_inserter(call_.shape), "{}{}", i > 0 ? " x " : "",
                     tensor.shape()[i]);
    }
    if (tensor.shape().rank() == 0) call_.shape += "1";
    if (!first_) {
      call_.dtype = tensor.dtype();
      first_ = true;
    } else if (tensor.dtype() != call_.dtype) {
      fmt::format_to(std::back_inserter(call_.shape), " {}", name_of(tensor.dtype()));
    }
    TensorForm form = beside(tensor);
    form.from_memory = from_memory;
    return form;
  }
  // A tensor of which that is known from the others, or which is small.
  TensorForm beside(const Tensor& tensor, Content content = Content::kNumbers,
                    int64_t below = 1) const {
    return {.shape = tensor.shape(),
            .dtype = tensor.dtype(),
            .address = tensor.data(),
            .content = content,
            .below = below,
            .given = true};
  }
  // The same for one that may be left out; `word` is said when it is given.
  TensorForm beside(const Tensor* tensor, std::string_view word,
                    Content content = Content::kNumbers) {
    if (!tensor) return {};
    say(word);
    return beside(*tensor, content);
  }
  void say(std::string_view word) {
    if (word.empty()) return;
    call_.shape += words_ ? ", " : "; ";
    call_.shape += word;
    words_ = true;
  }
  void say_if(bool condition, std::string_view word) {
    if (condition) say(word);
  }
  KernelCall costs(ops::Cost cost, std::function<KernelRun(CallTensors&)> prepare) {
    call_.cost = cost;
    call_.prepare = std::move(prepare);
    return std::move(call_);
  }

 private:
  KernelCall call_;
  bool first_ = false, words_ = false;
};

// What an argument that may be left out is given.
inline Tensor* or_null(Tensor& tensor) { return tensor.defined() ? &tensor : nullptr; }
inline const Tensor* or_null(const Tensor& tensor) { return tensor.defined() ? &tensor : nullptr; }

std::string_view name_of(Activation kind);

}  // namespace fsdp::meta
