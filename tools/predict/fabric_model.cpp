// Contract: tools/predict/fabric_model.h.
#include "tools/predict/fabric_model.h"

#include <algorithm>
#include <cmath>

namespace fsdp::tools {
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

}  // namespace fsdp::tools
