// Values in the arguments of layers' kernels that other code names too. They stand apart from the
// arguments (core/layer_args.h), so that a new kernel does not rebuild the code that names them.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/rng.h"
#include "core/tensor_role.h"

namespace fsdp {

class Tensor;

// kGeluBloom: kGeluTanh with constants rounded to eight digits, as BLOOM was trained; kGeluFast:
// with sqrt(2 / pi) rounded to ten digits. kGeluClipped: kGeluErf within [-10, 10]. kQuickGelu:
// x sigmoid(1.702 x). kLeakyRelu: 0.01 x below 0. kMish: x tanh(log(1 + e^x)). kLaplace: a normal
// distribution function, of mean 0.707107 and deviation 0.282095.
enum class Activation : uint8_t {
  kNone,
  kGeluTanh,
  kGeluErf,
  kGeluBloom,
  kRelu,
  kGeluFast,
  kGeluClipped,
  kQuickGelu,
  kSilu,
  kReluSquared,
  kRelu6,
  kLeakyRelu,
  kTanh,
  kSigmoid,
  kMish,
  kLaplace
};
std::string_view name_of(Activation kind);  // "gelu_tanh"

// Heads inside a row-major activation: element (b, t, h, d) of the view lies at
// (b * T + t) * row_width + offset + h * head_stride + d. Describes separate q, k, v tensors,
// GPT-2's packed [q | k | v] rows and BLOOM's [head, (q, k, v), d] rows alike.
struct HeadView {
  const Tensor* tensor = nullptr;  // (B, T, row_width)
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t offset = 0;       // elements
  int64_t head_stride = 0;  // elements
};

struct Dropout {
  double probability = 0;  // of being zeroed; kept values are scaled by 1 / (1 - probability)
  DropoutKey key;
  const Tensor* samples = nullptr;  // (B), i64: global sample index of each row of the batch

  template <typename V>
  Dropout visit(V& v) const {
    return {.probability = probability, .key = key, .samples = v(kIn.small().zeros(), samples)};
  }
};

constexpr int32_t kIgnoreIndex = -100;  // a label without a loss

}  // namespace fsdp
