// Measurement of the two rates, timed where they run: by the stream's trace.
#include "tools/runtime/speed_of_light.h"

#include <algorithm>

namespace fsdp::tools {
namespace {

constexpr size_t kArenaBytes = size_t{256} << 20;  // more than caches hold
constexpr size_t kCopyBytes = size_t{64} << 20;

size_t bytes_of(int64_t rows, int64_t columns, DType dtype) {
  return static_cast<size_t>(rows * columns) * size_of(dtype);
}

// A weight gradient is the product whose first operand is transposed: both operands are activations.
bool is_weight_gradient(const ops::MatmulExtents& e) { return e.transpose_a; }

struct Sizes {
  size_t a = 0, b = 0, c = 0;
};

Sizes sizes_of(const ops::MatmulExtents& e) {
  return {bytes_of(e.m, e.k, e.operand), bytes_of(e.k, e.n, e.operand),
          bytes_of(e.m, e.n, e.result)};
}

// The largest that `size` gives for any product of the step.
template <typename F>
size_t largest(const StepCost& cost, F&& size) {
  size_t bytes = 0;
  for (const StepProduct& p : cost.products) bytes = std::max(bytes, size(p.extents));
  return bytes;
}

Tensor bytes_on(Backend& backend, size_t bytes) {
  // As f32, so that it can be filled with numbers; none of them is subnormal in any dtype.
  return Tensor::empty(backend, Shape{static_cast<int64_t>(bytes + 3) / 4}, DType::kF32,
                       MemoryCategory::kWorkspace);
}

Tensor matrix(const Tensor& memory, int64_t rows, int64_t columns, DType dtype) {
  return {memory.storage(), 0, Shape{rows, columns}, dtype};
}

void fill(Tensor memory) {
  Backend& backend = memory.backend();
  // 0.0158 reads as a moderate number in f32, and both halves of its bits do in bf16 and f16.
  constexpr double kPattern = 0x1.033c34p-6;
  backend.fill_normal(backend.compute_stream(), memory, kPattern, 0, 0, 0, 0);
}

}  // namespace

SpeedOfLightMeter::Arena::Arena(Backend& backend, size_t bytes)
    : memory(bytes_on(backend, std::max(bytes, kArenaBytes))) {
  fill(memory);
}

Tensor SpeedOfLightMeter::Arena::take(Shape shape, DType dtype) {
  const size_t bytes = static_cast<size_t>(shape.numel()) * size_of(dtype);
  if (next + bytes > memory.bytes()) next = 0;
  Tensor taken(memory.storage(), static_cast<int64_t>(next), shape, dtype);
  next += rounded_bytes(bytes);
  return taken;
}

SpeedOfLightMeter::SpeedOfLightMeter(Backend& backend, const StepExtents& step)
    : backend_(backend),
      cost_(step_cost(step)),
      activations_{
          bytes_on(backend, largest(cost_, [](const auto& e) { return sizes_of(e).a; })),
          bytes_on(backend, largest(cost_,
                                    [](const auto& e) {
                                      return is_weight_gradient(e) ? sizes_of(e).b : size_t{0};
                                    })),
          bytes_on(backend, largest(cost_,
                                    [](const auto& e) {
                                      return is_weight_gradient(e) ? size_t{0} : sizes_of(e).c;
                                    }))},
      weights_(backend, largest(cost_,
                                [](const auto& e) {
                                  return is_weight_gradient(e) ? size_t{0} : sizes_of(e).b;
                                })),
      gradients_(backend, largest(cost_, [](const auto& e) {
                   return is_weight_gradient(e) ? sizes_of(e).c : size_t{0};
                 })) {
  for (const Tensor& memory : activations_) fill(memory);
  measure();  // makes the library's code for every shape
}

void SpeedOfLightMeter::enqueue(const ops::MatmulExtents& e) {
  const int64_t a_rows = e.transpose_a ? e.k : e.m, b_rows = e.transpose_b ? e.n : e.k;
  const Shape b_shape = {b_rows, e.k * e.n / b_rows}, c_shape = {e.m, e.n};
  const bool gradient = is_weight_gradient(e);
  const Tensor a = matrix(activations_[0], a_rows, e.m * e.k / a_rows, e.operand);
  const Tensor b = gradient ? matrix(activations_[1], b_shape[0], b_shape[1], e.operand)
                            : weights_.take(b_shape, e.operand);
  Tensor c = gradient ? gradients_.take(c_shape, e.result)
                      : matrix(activations_[2], e.m, e.n, e.result);
  backend_.matmul(backend_.compute_stream(), {.a = a,
                                              .b = b,
                                              .c = c,
                                              .transpose_a = e.transpose_a,
                                              .transpose_b = e.transpose_b,
                                              .accumulate = e.accumulate});
}

SpeedOfLight SpeedOfLightMeter::measure() {
  Trace trace;
  Stream& stream = backend_.compute_stream();
  backend_.set_trace(&trace);
  for (const StepProduct& product : cost_.products) enqueue(product.extents);
  const Shape copied = {static_cast<int64_t>(kCopyBytes) / 4};
  const Tensor from = weights_.take(copied, DType::kF32), to = gradients_.take(copied, DType::kF32);
  backend_.copy(stream, to.data(), from.data(), kCopyBytes);
  backend_.set_trace(nullptr);
  backend_.synchronize(stream);

  const std::vector<TraceEvent> events = trace.events();
  FSDP_CHECK(events.size() == cost_.products.size() + 1,
             "[speed of light] trace: expected {} events, got {}", cost_.products.size() + 1,
             events.size());
  const auto seconds = [&](size_t i) {
    return static_cast<double>(events[i].end_ns - events[i].begin_ns) * 1e-9;
  };
  double product_s = 0;
  for (size_t i = 0; i < cost_.products.size(); ++i) {
    product_s += seconds(i) * static_cast<double>(cost_.products[i].count);
  }
  SpeedOfLight light;
  const auto flops = static_cast<double>(cost_.product_flops());
  light.flops_per_s = flops / product_s;
  light.copy_bytes_per_s = 2.0 * static_cast<double>(kCopyBytes) / seconds(events.size() - 1);
  light.product_ms =
      1e3 * (flops + static_cast<double>(cost_.attention_flops)) / light.flops_per_s;
  light.pass_ms = 1e3 * static_cast<double>(cost_.pass_bytes()) / light.copy_bytes_per_s;
  return light;
}

// ---------------------------------------------------------------------------- Several slices

namespace {

// The times follow from the rates, so a choice of rates is a choice of times.
template <typename F>
SpeedOfLight choose(const std::vector<SpeedOfLight>& slices, F&& index_of_sorted) {
  SpeedOfLight chosen;
  for (const auto field : {&SpeedOfLight::flops_per_s, &SpeedOfLight::copy_bytes_per_s,
                           &SpeedOfLight::product_ms, &SpeedOfLight::pass_ms}) {
    std::vector<double> values;
    for (const SpeedOfLight& slice : slices) values.push_back(slice.*field);
    std::sort(values.begin(), values.end());
    const bool is_time = field == &SpeedOfLight::product_ms || field == &SpeedOfLight::pass_ms;
    const size_t last = values.size() - 1, index = index_of_sorted(last);
    chosen.*field = values[is_time ? last - index : index];
  }
  return chosen;
}

}  // namespace

SpeedOfLight highest(const std::vector<SpeedOfLight>& slices) {
  return choose(slices, [](size_t last) { return last; });
}

SpeedOfLight median(const std::vector<SpeedOfLight>& slices) {
  return choose(slices, [](size_t last) { return last / 2; });
}

}  // namespace fsdp::tools
