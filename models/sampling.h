// Which token follows, from the logits after the last one: the likeliest, or one drawn at random.
// Temperature, then top-k, then top-p, each as Hugging Face's generate() defines it.
#pragma once

#include <cstdint>
#include <vector>

namespace fsdp::models {

struct SamplingOptions {
  double temperature = 0;  // logits are divided by it; 0: the likeliest (greedy)
  int64_t top_k = 0;       // only the k likeliest, and those as likely as the k-th; 0: all
  // Only the likeliest that together reach this probability (Holtzman et al. 2020, nucleus
  // sampling): a token stays when those before it have less. 1: all.
  double top_p = 1;
  uint64_t seed = 0;
};

// Error for a temperature that is negative or not finite, a negative top_k, a top_p outside (0, 1],
// and for top_k or top_p without a temperature, where they would do nothing.
void validate(const SamplingOptions& options);

// What every token is drawn with under a temperature above 0; adds up to 1.
std::vector<double> sampling_probabilities(const std::vector<double>& logits,  // (V), finite
                                           const SamplingOptions& options);

// Random numbers are a function of (seed, sample, position), so that a text depends neither on the
// texts beside it nor on the ranks. sample: which prompt; position: how many tokens are before this
// one.
struct SamplingPlace {
  uint64_t sample = 0;
  uint64_t position = 0;
};
// Among equals the greedy choice is the first. Error when a logit is not finite.
int32_t choose_token(const std::vector<double>& logits,  // (V)
                     const SamplingOptions& options, const SamplingPlace& place);

}  // namespace fsdp::models
