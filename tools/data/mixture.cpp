// Contract: tools/data/mixture.h.
#include "tools/data/mixture.h"

#include <cmath>

#include "core/error.h"
#include "core/rng.h"

namespace fsdp::data {
namespace {

using Wide = unsigned __int128;

constexpr double kLeast = 1e-6, kMost = 1e6;

}  // namespace

Mixture::Mixture(std::span<const WeightedSource> sources, uint64_t seed) {
  FSDP_CHECK(!sources.empty(), "[mixture] expected at least one source");
  for (size_t s = 0; s < sources.size(); ++s) {
    const WeightedSource& source = sources[s];
    FSDP_CHECK(source.weight >= kLeast && source.weight <= kMost,
               "[mixture] source {}: weight: expected a number from {} to {}, got {}", s, kLeast,
               kMost, source.weight);
    FSDP_CHECK(source.items >= 1, "[mixture] source {}: expected at least one item", s);
  }
  for (size_t s = 0; s + 1 < sources.size(); ++s) {
    double rest = 0;
    for (size_t t = s; t < sources.size(); ++t) rest += sources[t].weight;
    const Philox4x32 words =
        philox4x32({static_cast<uint32_t>(s), 0, 0, 0x6d697874u},  // "mixt"
                   {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    // Below 1 by far more than rounding: what is left over has at least the least weight.
    shares_.push_back({.of_rest = static_cast<uint64_t>(std::ldexp(sources[s].weight / rest, 64)),
                       .phase = uint64_t{words[0]} << 32 | words[1]});
  }
}

Mixture::Draw Mixture::draw(int64_t sample) const {
  auto left = static_cast<uint64_t>(sample);
  for (size_t s = 0; s < shares_.size(); ++s) {
    const auto given = [&](uint64_t of) {
      return static_cast<uint64_t>((Wide{of} * shares_[s].of_rest + shares_[s].phase) >> 64);
    };
    const uint64_t before = given(left);
    if (given(left + 1) > before) return {s, static_cast<int64_t>(before)};
    left -= before;
  }
  return {shares_.size(), static_cast<int64_t>(left)};
}

}  // namespace fsdp::data
