// Continues a token sequence with a session's model. All ranks compute the same logits and draw the
// same random numbers, so the text does not depend on how many ranks there are.
// Not here: text (tools/data/tokenizer.h), keys and values of earlier tokens are not kept.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tools/runtime/session.h"

namespace fsdp::tools {

struct GenerationOptions {
  int64_t tokens = 64;     // at most
  double temperature = 0;  // 0: greedy
  int64_t top_k = 0;       // only the k likeliest; 0: all
  uint64_t seed = 0;
  int32_t stop = -1;       // ends the generation, is not returned; -1: none
  int64_t vocabulary = 0;  // ids from here on only pad the model's table: never chosen; 0: none
};

// The new tokens. Collective; every rank passes the same arguments. The model sees the last
// Session::max_length() tokens. `use`, if any, gets each of them as soon as it is known.
std::vector<int32_t> generate_tokens(Session& session, const GenerationOptions& options,
                                     std::vector<int32_t> prompt,
                                     const std::function<void(int32_t token)>& use = {});

// The token that `logits` (V) give at `position` of the sequence: the likeliest (the first of
// equals), or one drawn with the Philox numbers of (seed, position).
int32_t choose_token(const std::vector<double>& logits, const GenerationOptions& options,
                     uint64_t position);

}  // namespace fsdp::tools
