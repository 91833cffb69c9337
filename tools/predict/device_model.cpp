// Contract: tools/predict/device_model.h.
#include "tools/predict/device_model.h"

#include <algorithm>
#include <cmath>

namespace fsdp::tools {
namespace {

double number(int64_t value) { return static_cast<double>(value); }

double clock_share(const PowerLimit& power) {
  return power.design_watts > 0 ? std::cbrt(power.limit_watts / power.design_watts) : 1;
}

double product_rate(const Rates& rates, DType dtype) {
  const auto found = rates.flops_per_s.find(dtype);
  const double rate =
      found != rates.flops_per_s.end() ? found->second : rates.flops_per_s.at(DType::kF32);
  return rate * clock_share(rates.power);
}

// The share of the multiprocessors that have something to do.
double fill_of(const MatmulExtents& extents, int multiprocessors) {
  constexpr double kTile = 64, kDepth = 1024;
  if (multiprocessors == 0) return 1;
  const double tiles = std::ceil(number(extents.m) / kTile) * std::ceil(number(extents.n) / kTile);
  const double splits = std::max(1.0, std::floor(number(extents.k) / kDepth));
  return std::min(1.0, tiles * splits / multiprocessors);
}

double product_seconds(const Rates& rates, const meta::KernelCall& call) {
  const MatmulExtents& extents = *call.product;
  const ProductHalves& half = rates.product_half;
  const double slower = (1 + half.m / number(extents.m)) * (1 + half.n / number(extents.n)) *
                        (1 + half.k / number(extents.k)) / fill_of(extents, rates.multiprocessors);
  return number(call.cost.flops) / product_rate(rates, call.dtype) * slower;
}

// Where attention has no rate of its own: as products without end.
double attention_seconds(const Rates& rates, const meta::KernelCall& call) {
  constexpr double kUsualHead = 128;
  const AttentionRate& attention = rates.attention;
  const auto found = attention.flops_per_s.find(call.dtype);
  if (found == attention.flops_per_s.end()) {
    return number(call.cost.flops) / product_rate(rates, call.dtype);
  }
  const double head = number(call.attention->head_dim), keys = number(call.attention->keys);
  const double share = (kUsualHead + attention.head_half) / kUsualHead *
                       (head / (head + attention.head_half)) *
                       (keys / (keys + attention.keys_half));
  return number(call.cost.flops) / (found->second * clock_share(rates.power) * share);
}

}  // namespace

double modelled_seconds(const Rates& rates, const meta::KernelCall& call) {
  const double computing_s = call.product ? product_seconds(rates, call)
                             : call.attention
                                 ? attention_seconds(rates, call)
                                 : number(call.cost.flops) / product_rate(rates, call.dtype);
  const double moving_s = number(call.cost.bytes) / rates.memory_bytes_per_s;
  return std::max(1e-6 * rates.kernel_us, std::max(computing_s, moving_s) + 1e-6 * rates.ramp_us);
}

}  // namespace fsdp::tools
