// Rows before measurements before estimates.
#include "tools/predict/call_rates.h"

#include <algorithm>
#include <cmath>

namespace fsdp::tools {

CallRates::CallRates(Rates rates, MeasureCall measure, double percentile)
    : rates_(std::move(rates)), measure_(std::move(measure)), percentile_(percentile) {}

double CallRates::kernel_seconds(const meta::KernelCall& call) {
  CallKey key = {std::string(call.kernel), call.shape, call.dtype};
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second * 1e-6;
  double us = 0;
  if (const auto row = rates_.kernels.find(key); row != rates_.kernels.end()) {
    us = row->second;
    ++sources_.rows;
  } else if (const auto seconds = measure_ ? measure_(call) : std::nullopt; seconds) {
    us = *seconds * 1e6;
    rates_.kernels.emplace(key, us);
    ++sources_.measured;
  } else {
    us = 1e6 * modelled_seconds(rates_, call);
    ++sources_.estimated;
  }
  known_.emplace(std::move(key), us);
  return us * 1e-6;
}

// The optimizer's kernels, which read and write memory once.
double CallRates::host_kernel_seconds(const meta::KernelCall& call) {
  if (rates_.host_memory_bytes_per_s == 0) return kernel_seconds(call);
  return static_cast<double>(call.cost.bytes) / rates_.host_memory_bytes_per_s;
}

double CallRates::host_copy_seconds(int64_t bytes) {
  return rates_.host_copy.seconds(static_cast<double>(bytes));
}

double CallRates::file_seconds(int64_t bytes, bool writes) {
  const LinkRate& disk = writes ? rates_.disk_write : rates_.disk_read;
  return disk.seconds(static_cast<double>(bytes));
}

double CallRates::collective_seconds(const comm::MetaCollective& collective) const {
  return tools::collective_seconds(rates_, collective.kind, static_cast<double>(collective.bytes),
                                   place_of(collective.members, rates_.ranks_per_node),
                                   percentile_);
}
namespace {

using comm::Collective;

// Bytes that a rank sends, or receives where that is more, for a buffer of `bytes`: what
// nccl-tests divides by the time for its busbw.
double bus_bytes(Collective kind, double bytes, double ranks) {
  switch (kind) {
    case Collective::kAllReduce:
      return 2 * bytes * (ranks - 1) / ranks;
    case Collective::kBroadcast:
      return bytes;
    default:
      return bytes * (ranks - 1) / ranks;
  }
}

double steps_us(const Rates& rates, Collective kind, const GroupPlace& place) {
  const double inside = rates.inside_node.hop_us, between = rates.between_nodes.hop_us;
  const double ring = (place.ranks - place.nodes) * inside + (place.nodes - 1) * between;
  if (kind != Collective::kAllReduce) return ring;
  if (place.nodes == 1) return 2 * ring;
  const double tree = (place.ranks / place.nodes - 1) * inside +  // down a chain in each node
                      std::ceil(std::log2(place.nodes)) * between;
  return 2 * std::min(ring, tree);
}

// At `x` on the line through (x0, y0) and (x1, y1), where both axes are logarithms.
double on_line(double x, double x0, double y0, double x1, double y1) {
  return y0 * std::pow(y1 / y0, std::log(x / x0) / std::log(x1 / x0));
}

// The bandwidth that the time's percentile leaves: the 5th is that of the 95th of the time.
double at_percentile(const MeasuredBus& row, double percentile) {
  const double other = percentile > 50 ? row.p5 : row.p95;
  if (other == 0) return row.bytes_per_s;
  return row.bytes_per_s * std::pow(other / row.bytes_per_s, std::abs(percentile - 50) / 45);
}

// Beyond the ends: as at the ends.
double measured_busbw(const std::vector<MeasuredBus>& rows, int ranks, double percentile) {
  const auto above = std::find_if(rows.begin(), rows.end(),
                                  [&](const MeasuredBus& row) { return row.ranks >= ranks; });
  if (above == rows.end()) return at_percentile(rows.back(), percentile);
  if (above == rows.begin()) return at_percentile(*above, percentile);
  const MeasuredBus& below = *std::prev(above);
  return on_line(ranks, below.ranks, at_percentile(below, percentile), above->ranks,
                 at_percentile(*above, percentile));
}

double busbw(const Rates& rates, Collective kind, const GroupPlace& place, double percentile) {
  const int each = place.ranks / place.nodes;  // of a node
  if (const auto rows = rates.measured_bus.find(kind); rows != rates.measured_bus.end()) {
    if (place.nodes == 1) return measured_busbw(rows->second, place.ranks, percentile);
    // Full nodes were measured. The links of the ranks that are not of this group do not work for
    // it.
    return measured_busbw(rows->second, place.nodes * rates.ranks_per_node, percentile) * each /
           rates.ranks_per_node;
  }
  if (place.nodes == 1) return rates.inside_node.bytes_per_s;
  return std::min(rates.between_nodes.bytes_per_s * place.ranks / place.nodes,
                  rates.inside_node.bytes_per_s);
}

}  // namespace

GroupPlace place_of(const std::vector<int>& members, int ranks_per_node) {
  GroupPlace place = {.ranks = static_cast<int>(members.size())};
  for (size_t i = 1; i < members.size(); ++i) {
    if (members[i] / ranks_per_node != members[i - 1] / ranks_per_node) ++place.nodes;
  }
  return place;
}

double collective_seconds(const Rates& rates, Collective kind, double bytes,
                          const GroupPlace& place, double percentile) {
  if (place.ranks == 1) return 0;
  const LinkRate& link = place.nodes == 1 ? rates.inside_node : rates.between_nodes;
  return 1e-6 * (link.latency_us + steps_us(rates, kind, place)) +
         bus_bytes(kind, bytes, place.ranks) / busbw(rates, kind, place, percentile);
}
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
