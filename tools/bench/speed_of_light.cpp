// Measurement of the two rates, timed where they run: by the stream's trace.
#include "tools/bench/speed_of_light.h"

#include <algorithm>
#include <utility>

#include "core/layer_args.h"
#include "core/shard_args.h"
#include "kernels/cpu/multiply_add_peak.h"

namespace fsdp::tools {
namespace {

constexpr size_t kCopyBytes = size_t{32} << 20;
constexpr size_t kLargestArena = size_t{256} << 20;  // more than caches hold

// A weight gradient is the product whose first operand is transposed: both operands are
// activations.
bool is_weight_gradient(const MatmulExtents& e) { return e.transpose_a; }

// Bytes of the largest matrix in each role.
struct Extremes {
  size_t first_operand = 0, second_operand = 0, result = 0, weight = 0, gradient = 0;

  void include(const MatmulExtents& e) {
    const auto enlarge = [](size_t& bytes, const Shape& shape, DType dtype) {
      bytes = std::max(bytes, static_cast<size_t>(shape.numel()) * size_of(dtype));
    };
    enlarge(first_operand, e.a(), e.operand);
    enlarge(is_weight_gradient(e) ? second_operand : weight, e.b(), e.operand);
    enlarge(is_weight_gradient(e) ? gradient : result, e.c(), e.result);
  }
};

// Filled with 0.0158, which reads as moderate numbers in f32, and by halves in bf16 and f16: none
// is subnormal, which would be slow.
Tensor filled(Backend& backend, size_t bytes) {
  constexpr double kPattern = 0x1.033c34p-6;
  Tensor memory = Tensor::empty(backend, Shape{static_cast<int64_t>(bytes + 3) / 4}, DType::kF32,
                                MemoryCategory::kWorkspace);
  backend.run(backend.compute_stream(), FillNormalArgs{memory, kPattern, 0, 0, 0, 0});
  return memory;
}

Tensor matrix(const Tensor& memory, const Shape& shape, DType dtype) {
  return {memory.storage(), 0, shape, dtype};
}

}  // namespace

SpeedOfLightMeter::Arena::Arena(Backend& backend, size_t bytes) : memory(filled(backend, bytes)) {}

Tensor SpeedOfLightMeter::Arena::take(Shape shape, DType dtype) {
  const size_t bytes = static_cast<size_t>(shape.numel()) * size_of(dtype);
  if (next + bytes > memory.bytes()) next = 0;
  Tensor taken(memory.storage(), static_cast<int64_t>(next), shape, dtype);
  next += rounded_bytes(bytes);
  return taken;
}

SpeedOfLightMeter::SpeedOfLightMeter(Backend& backend, StepCost cost, size_t weight_bytes,
                                     int cpu_threads)
    : backend_(backend), cost_(std::move(cost)) {
  if (cpu_threads > 0) team_.emplace(cpu_threads);
  Extremes extremes;
  for (const StepProduct& product : cost_.products) extremes.include(product.extents);
  first_operand_ = filled(backend, extremes.first_operand);
  second_operand_ = filled(backend, extremes.second_operand);
  result_ = filled(backend, extremes.result);
  // As much memory as the step's own weights take, as far as that matters.
  const size_t rotated = std::clamp(weight_bytes, kCopyBytes, kLargestArena);
  weights_ = Arena(backend, std::max(rotated, extremes.weight));
  gradients_ = Arena(backend, std::max(rotated, extremes.gradient));
  measure();  // the library makes its code for every shape
}

void SpeedOfLightMeter::enqueue(const MatmulExtents& e) {
  const bool gradient = is_weight_gradient(e);
  const Tensor a = matrix(first_operand_, e.a(), e.operand);
  const Tensor b =
      gradient ? matrix(second_operand_, e.b(), e.operand) : weights_.take(e.b(), e.operand);
  Tensor c = gradient ? gradients_.take(e.c(), e.result) : matrix(result_, e.c(), e.result);
  backend_.run(backend_.compute_stream(), MatmulArgs{.a = a,
                                                     .b = b,
                                                     .c = c,
                                                     .transpose_a = e.transpose_a,
                                                     .transpose_b = e.transpose_b,
                                                     .accumulate = e.accumulate});
}

double SpeedOfLightMeter::peak() {
  constexpr double kSeconds = 0.01;
  if (!team_) return 0;
  const DType operand = cost_.products.at(0).extents.operand;
  return cpu::multiply_add_peak(*team_, operand, kSeconds).value_or(0);
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
  const auto flops = static_cast<double>(cost_.product_flops());
  return {.flops_per_s = flops / product_s,
          .copy_bytes_per_s = 2.0 * static_cast<double>(kCopyBytes) / seconds(events.size() - 1),
          .flops = flops + static_cast<double>(cost_.attention_flops()),
          .pass_bytes = static_cast<double>(cost_.pass_bytes()),
          .peak_flops_per_s = peak()};
}

// ---------------------------------------------------------------------------- Several slices

namespace {

double at_quantile(const std::vector<SpeedOfLight>& slices, double SpeedOfLight::*rate,
                   double quantile) {
  std::vector<double> values;
  for (const SpeedOfLight& slice : slices) values.push_back(slice.*rate);
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(quantile * static_cast<double>(values.size() - 1))];
}

SpeedOfLight choose(const std::vector<SpeedOfLight>& slices, double quantile) {
  FSDP_CHECK(!slices.empty(), "[speed of light] slices: expected at least one");
  SpeedOfLight light = slices[0];
  light.flops_per_s = at_quantile(slices, &SpeedOfLight::flops_per_s, quantile);
  light.copy_bytes_per_s = at_quantile(slices, &SpeedOfLight::copy_bytes_per_s, quantile);
  light.peak_flops_per_s = at_quantile(slices, &SpeedOfLight::peak_flops_per_s, quantile);
  return light;
}

}  // namespace

SpeedOfLight highest(const std::vector<SpeedOfLight>& slices) { return choose(slices, 1); }
SpeedOfLight median(const std::vector<SpeedOfLight>& slices) { return choose(slices, 0.5); }

}  // namespace fsdp::tools
