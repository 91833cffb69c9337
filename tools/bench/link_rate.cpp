// A weighted straight line.
#include "tools/bench/link_rate.h"

#include <algorithm>
#include <map>

namespace fsdp::tools {
namespace {

double bus_bytes(const CommResult& result) {
  return static_cast<double>(result.what.bytes) * bus_factor(result.what.collective, result.ranks);
}

}  // namespace

LinkRate fit_link(const std::vector<CommResult>& results) {
  // Minimises the sum of w (a + b x - t)^2 with w = 1 / t^2.
  double w_sum = 0, x_sum = 0, t_sum = 0, least = 0, most = 0;
  for (const CommResult& result : results) {
    const double t = result.seconds.median, w = 1 / (t * t), x = bus_bytes(result);
    w_sum += w;
    x_sum += w * x;
    t_sum += w * t;
    least = least == 0 ? x : std::min(least, x);
    most = std::max(most, x);
  }
  FSDP_CHECK(most > least, "link: expected collectives of several sizes, got {:.0f} bytes in all",
             most);
  const double x_mean = x_sum / w_sum, t_mean = t_sum / w_sum;
  double covariance = 0, variance = 0;
  for (const CommResult& result : results) {
    const double t = result.seconds.median, w = 1 / (t * t), x = bus_bytes(result) - x_mean;
    covariance += w * x * (t - t_mean);
    variance += w * x * x;
  }
  const double slope = covariance / variance;
  FSDP_CHECK(slope > 0,
             "link: expected larger collectives to take longer; measure larger ones than {:.0f} "
             "bytes",
             most);
  const double latency = t_mean - slope * x_mean;
  // Through the origin instead: the same sum without a.
  if (latency >= 0) return {.latency_us = latency * 1e6, .bytes_per_s = 1 / slope};
  double xt = 0, xx = 0;
  for (const CommResult& result : results) {
    const double t = result.seconds.median, w = 1 / (t * t), x = bus_bytes(result);
    xt += w * x * t;
    xx += w * x * x;
  }
  return {.latency_us = 0, .bytes_per_s = xx / xt};
}

namespace {

// The numbers of `key` are this program's own from now on.
void replace_source(Rates& rates, const std::string& key) {
  const size_t old = std::erase_if(rates.sources, [&](const auto& source) {
    return source.first == key || source.first.starts_with(key + ".");
  });
  if (old > 0) rates.sources[key] = "measured by bench comm";
}

}  // namespace

std::string set_link(Rates& rates, LinkRate link, const std::vector<std::string>& hosts) {
  // What others measured would come before it.
  rates.measured_bus.clear();
  std::erase_if(rates.sources,
                [](const auto& source) { return source.first.starts_with("measured_bus"); });
  std::map<std::string, int> ranks;
  for (const std::string& host : hosts) ++ranks[host];
  if (ranks.size() == 1) {
    rates.inside_node = link;
    replace_source(rates, "inside_node");
    return "inside_node";
  }
  const int each = ranks.begin()->second;
  for (const auto& [host, count] : ranks) {
    FSDP_CHECK(count == each,
               "link between hosts: expected as many ranks on each, got {} on {} and {} on {}",
               each, ranks.begin()->first, count, host);
  }
  link.bytes_per_s /= each;
  rates.between_nodes = link;
  replace_source(rates, "between_nodes");
  return "between_nodes";
}

}  // namespace fsdp::tools
