// Probabilities after temperature, top-k and top-p, and the draw.
#include "models/sampling.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "core/error.h"
#include "core/rng.h"

namespace fsdp::models {
namespace {

// In [0, 1) with 53 bits.
double uniform_at(uint64_t seed, const SamplingPlace& place) {
  const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  const auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  const Philox4x32 words =
      philox4x32({low(place.position), high(place.position), low(place.sample), high(place.sample)},
                 {low(seed), high(seed)});
  const uint64_t bits = (static_cast<uint64_t>(words[0]) << 32 | words[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

void keep_top_k(std::vector<double>& weights, int64_t k) {
  if (k <= 0 || k >= static_cast<int64_t>(weights.size())) return;
  std::vector<double> sorted = weights;
  const auto kth = sorted.begin() + (k - 1);
  std::nth_element(sorted.begin(), kth, sorted.end(), std::greater<>());
  for (double& weight : weights) {
    if (weight < *kth) weight = 0;
  }
}

void keep_top_p(std::vector<double>& weights, double p) {
  if (p >= 1) return;
  // From likely to unlikely, equals by id: a total order, so that every machine cuts alike.
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return weights[a] != weights[b] ? weights[a] > weights[b] : a < b;
  });
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double before = 0;
  for (const size_t token : order) {
    const double weight = weights[token];
    if (before >= p * total) weights[token] = 0;
    before += weight;
  }
}

}  // namespace

void validate(const SamplingOptions& o) {
  FSDP_CHECK(std::isfinite(o.temperature) && o.temperature >= 0,
             "temperature: expected at least 0, got {}", o.temperature);
  FSDP_CHECK(o.top_k >= 0, "top-k: expected at least 0, got {}", o.top_k);
  FSDP_CHECK(o.top_p > 0 && o.top_p <= 1, "top-p: expected above 0 and at most 1, got {}", o.top_p);
  FSDP_CHECK(o.temperature > 0 || (o.top_k == 0 && o.top_p == 1),
             "{}: needs a temperature above 0; without one the likeliest token is taken",
             o.top_k > 0 ? "top-k" : "top-p");
}

std::vector<double> sampling_probabilities(const std::vector<double>& logits,
                                           const SamplingOptions& options) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> weights;
  weights.reserve(logits.size());
  for (const double logit : logits) {
    weights.push_back(std::exp((logit - largest) / options.temperature));
  }
  keep_top_k(weights, options.top_k);
  keep_top_p(weights, options.top_p);
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= total;
  return weights;
}

int32_t choose_token(const std::vector<double>& logits, const SamplingOptions& options,
                     const SamplingPlace& place) {
  FSDP_CHECK(!logits.empty(), "[generate] logits: none");
  for (const double logit : logits) {
    FSDP_CHECK(std::isfinite(logit), "[generate] logits at position {}: not finite",
               place.position);
  }
  if (options.temperature <= 0) {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  const std::vector<double> probabilities = sampling_probabilities(logits, options);
  double left = uniform_at(options.seed, place);
  int32_t last = 0;
  for (size_t token = 0; token < probabilities.size(); ++token) {
    if (probabilities[token] == 0) continue;
    last = static_cast<int32_t>(token);
    left -= probabilities[token];
    if (left < 0) break;
  }
  return last;  // also when rounding left a little: the last that may be drawn
}

}  // namespace fsdp::models
