// The loop, and its line of the table.
#include "tools/bench/scalar_adam.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include <fmt/format.h>

namespace fsdp::tools {
namespace {

// Of a call, about a millisecond: other programs on the machine interrupt longer ones.
constexpr int64_t kMostElements = int64_t{1} << 18;

}  // namespace

__attribute__((optimize("no-tree-vectorize"))) void scalar_adamw(const AdamElements& e,
                                                                 const AdamNumbers& k) {
  const float keep = 1 - k.learning_rate * k.weight_decay;
  const float step = k.learning_rate / (1 - std::pow(k.beta1, static_cast<float>(k.t)));
  const float root = std::sqrt(1 - std::pow(k.beta2, static_cast<float>(k.t)));
  for (int64_t i = 0; i < e.n; ++i) {
    const float g = e.grad[i];
    const float m = e.exp_avg[i] + (1 - k.beta1) * (g - e.exp_avg[i]);
    const float v = k.beta2 * e.exp_avg_sq[i] + (1 - k.beta2) * g * g;
    e.exp_avg[i] = m;
    e.exp_avg_sq[i] = v;
    e.master[i] = e.master[i] * keep - step * (m / (std::sqrt(v) / root + k.epsilon));
  }
}

KernelCase scalar_adam_line(int64_t of_kernel) {
  const int64_t elements = std::min(of_kernel, kMostElements);
  const auto prepare = [=](meta::CallTensors& tensors) -> meta::KernelRun {
    std::array<Tensor, 4> t;  // master, grad, exp_avg, exp_avg_sq
    for (size_t i = 0; i < t.size(); ++i) {
      t[i] = tensors.make({Shape{elements}, DType::kF32, &t[i], i < 2 ? kIn : kIn.ones()});
    }
    return [=](Backend& backend, Stream& stream) {
      backend.host_task(stream, "scalar adamw", 0, [=] {
        scalar_adamw({t[0].data_as<float>(), t[1].data_as<float>(), t[2].data_as<float>(),
                      t[3].data_as<float>(), elements},
                     {});
      });
    };
  };
  const std::string_view name = kScalarAdam;
  return {std::string(name.substr(5)),
          fmt::format("{}", elements),
          {},
          {.kernel = "adam", .cost = {.bytes = 28 * elements}, .prepare = prepare}};
}

}  // namespace fsdp::tools
