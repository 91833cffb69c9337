// Several sources in the proportion of their weights: which source gives a sample, and how many
// samples this source has given before. Both are a closed form of the sample's number, so a run on
// any number of ranks, or one that goes on later, asks for any sample.
//
// The sources are decided one after the other. Of the first m samples that the sources before have
// left over, source s gives floor(m w_s / (w_s + w_{s+1} + ...) + phase_s); the others are left to
// the next. So any n samples in a row have n w_s / (sum of all w) of source s, give or take less
// than s + 1, counted from 0. The phases, from 0 to below 1, come from the seed. Not here: what an
// item is (sequences.h), the order of a source's items (sampler.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fsdp::data {

struct WeightedSource {
  int64_t items = 0;
  double weight = 1;
};

class Mixture {
 public:
  // Error when a weight is not from 1e-6 to 1e6, or a source has no item.
  Mixture(std::span<const WeightedSource> sources, uint64_t seed);

  struct Draw {
    size_t source = 0;
    int64_t number = 0;  // of this source's draws, from 0
  };
  Draw draw(int64_t sample) const;  // sample >= 0

 private:
  // In units of 2^-64.
  struct Share {
    uint64_t of_rest = 0;  // of what the sources before leave
    uint64_t phase = 0;
  };
  std::vector<Share> shares_;  // of every source but the last
};

}  // namespace fsdp::data
