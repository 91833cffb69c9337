// The loop of generation and the choice of a token.
#include "tools/runtime/generation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/rng.h"

namespace fsdp::tools {
namespace {

// In [0, 1) with 53 bits.
double uniform_at(uint64_t seed, uint64_t position) {
  const Philox4x32 words =
      philox4x32({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = (static_cast<uint64_t>(words[0]) << 32 | words[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace

int32_t choose_token(const std::vector<double>& logits, const GenerationOptions& options,
                     uint64_t position) {
  FSDP_CHECK(!logits.empty(), "[generate] logits: none");
  for (const double logit : logits) {
    FSDP_CHECK(std::isfinite(logit), "[generate] logits at position {}: not finite", position);
  }
  const auto likeliest = std::max_element(logits.begin(), logits.end());
  if (options.temperature <= 0) return static_cast<int32_t>(likeliest - logits.begin());
  // Candidates from likely to unlikely, equals by id: a total order, so that every rank agrees.
  std::vector<int32_t> candidates(logits.size());
  std::iota(candidates.begin(), candidates.end(), 0);
  const auto logit = [&](int32_t token) { return logits[static_cast<size_t>(token)]; };
  std::sort(candidates.begin(), candidates.end(), [&](int32_t a, int32_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  });
  if (options.top_k > 0 && options.top_k < static_cast<int64_t>(candidates.size())) {
    candidates.resize(static_cast<size_t>(options.top_k));
  }
  std::vector<double> weights;
  double total = 0;
  for (const int32_t token : candidates) {
    weights.push_back(std::exp((logit(token) - *likeliest) / options.temperature));
    total += weights.back();
  }
  double left = uniform_at(options.seed, position) * total;
  for (size_t i = 0; i < candidates.size(); ++i) {
    left -= weights[i];
    if (left < 0) return candidates[i];
  }
  return candidates.back();  // rounding: the weights did not quite add up to the total
}

std::vector<int32_t> generate_tokens(Session& session, const GenerationOptions& options,
                                     std::vector<int32_t> prompt,
                                     const std::function<void(int32_t)>& use) {
  FSDP_CHECK(!prompt.empty(), "[generate] prompt: expected at least one token");
  const size_t context = static_cast<size_t>(session.max_length());
  std::vector<int32_t> sequence = std::move(prompt), out;
  for (int64_t i = 0; i < options.tokens; ++i) {
    const size_t first = sequence.size() - std::min(context, sequence.size());
    std::vector<double> logits = session.next_token_logits(
        {sequence.begin() + static_cast<std::ptrdiff_t>(first), sequence.end()});
    if (options.vocabulary > 0) {
      logits.resize(std::min(logits.size(), static_cast<size_t>(options.vocabulary)));
    }
    const int32_t token = choose_token(logits, options, sequence.size());
    if (token == options.stop) break;
    sequence.push_back(token);
    out.push_back(token);
    if (use) use(token);
  }
  return out;
}

}  // namespace fsdp::tools
