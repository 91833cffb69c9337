// A tokenizer may have tokens that its model's table has no row for, such as a "[PAD]" that was
// added later. Texts without such a token are of use all the same. Not here: a batch, which is
// looked at again (tools/engine/session.h).
#pragma once

#include <cstdint>

#include "tools/data/token_cache.h"

namespace fsdp::data {

// Error for tokens of the cache from `rows` on, which names the first one and its place in the
// files of `source`, which the cache was made of. Reads all tokens, where the tokenizer is larger.
void check_tokens_below(int64_t rows, const TokenCache& cache, const TokenSource& source,
                        const Tokenizer& tokenizer);

// The token that fills up rows: the tokenizer's, else its end-of-text, else 0, whichever the model
// has a row for.
int32_t padding_below(int64_t rows, const Tokenizer& tokenizer);

}  // namespace fsdp::data
