// A Fisher-Yates shuffle from the front; each index is the rest of a draw of the Mersenne Twister,
// whose seed is the low half of the generator's.
#include "tools/data/torch_permutation.h"

#include <numeric>
#include <random>
#include <utility>

#include "core/error.h"

namespace fsdp::data {

std::vector<uint32_t> torch_permutation(int64_t size, uint64_t seed) {
  constexpr int64_t kLimit = UINT32_MAX / 20;
  FSDP_CHECK(size >= 0 && size < kLimit,
             "data.shuffle_rule: torch: expected fewer than {} sequences, got {}", kLimit, size);
  std::vector<uint32_t> out(static_cast<size_t>(size));
  std::iota(out.begin(), out.end(), 0u);
  std::mt19937 random(static_cast<uint32_t>(seed));
  for (size_t i = 0; i + 1 < out.size(); ++i) {
    std::swap(out[i], out[i + random() % (out.size() - i)]);
  }
  return out;
}

}  // namespace fsdp::data
