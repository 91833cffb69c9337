// State of the loss scale and the two published sets of parameters.
#include "optim/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "core/shard_args.h"

namespace fsdp::optim {
namespace {

// fairseq's. PyTorch has none and goes on to 0, where every further step is skipped.
constexpr double kMinimum = 1e-4;

}  // namespace

LossScalerOptions LossScalerOptions::torch() {
  return {.initial = 65536, .rule = {.growth = 2, .interval = 2000, .minimum = kMinimum}};
}

LossScalerOptions LossScalerOptions::fairseq(int ranks, int64_t micro_steps) {
  const int64_t window = (int64_t{1} << 14) / ranks / micro_steps;
  return {.initial = 128, .rule = {.interval = std::max<int64_t>(window, 1), .minimum = kMinimum}};
}

LossScaler::LossScaler(Backend& backend, const LossScalerOptions& options) : rule_(options.rule) {
  FSDP_CHECK(std::isfinite(options.initial) && options.initial > 0,
             "[loss scale] initial: expected a positive number, got {}", options.initial);
  FSDP_CHECK(
      rule_.growth >= 1 && rule_.backoff > 0 && rule_.backoff <= 1 && rule_.interval >= 1,
      "[loss scale] expected growth >= 1, backoff in (0, 1] and interval >= 1, got {}, {} and {}",
      rule_.growth, rule_.backoff, rule_.interval);
  const auto zeros = [&](Shape shape, DType dtype) {
    return Tensor::zeros(backend, shape, dtype, MemoryCategory::kOptimizerState);
  };
  scale_ = zeros(Shape{}, DType::kF32);
  counters_ = zeros(Shape{3}, DType::kI32);
  aborted_ = zeros(Shape{}, DType::kI32);
  const auto initial = static_cast<float>(options.initial);
  scale_.write(&initial);
}

LossScalerState LossScaler::state() const {
  LossScalerState state;
  scale_.read(&state.scale);
  counters_.read(state.counters.data());
  aborted_.read(&state.aborted);
  return state;
}

void LossScaler::restore(const LossScalerState& state) {
  scale_.write(&state.scale);
  counters_.write(state.counters.data());
  aborted_.write(&state.aborted);
}

void LossScaler::update(const Tensor& overflow) {
  Backend& backend = scale_.backend();
  backend.run(backend.compute_stream(), LossScaleArgs{.rule = rule_,
                                                      .overflow = overflow,
                                                      .scale = scale_,
                                                      .counters = counters_,
                                                      .aborted = aborted_});
}

}  // namespace fsdp::optim
