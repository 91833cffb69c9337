// Continues texts with a session's model, several at once. The prompts are dealt to the ranks,
// which compute their own rows and tell each other the tokens they chose; a rank without rows
// computes a row that nobody looks at, so that every gather finds all ranks. Random numbers belong
// to a prompt and a place in its text, so what is drawn depends neither on the batch nor on the
// ranks. Read next: models/sampling.h (which token), core/kv_cache.h. Not here: text
// (tools/data/tokenizer/tokenizer.h).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "models/sampling.h"
#include "tools/engine/session.h"

namespace fsdp::tools {

struct GenerationOptions {
  int64_t tokens = 64;  // of each text, at most
  models::SamplingOptions sampling;
  std::vector<int32_t> stop;  // each of them ends a text and is not returned
  int64_t vocabulary = 0;     // ids from here on are never chosen unless they stop; 0: none
  bool cache = true;          // keep keys and values; without, every token computes the whole text
};

struct Generated {
  std::vector<int32_t> ids;  // the new ones
  bool stopped = false;      // by a stop token, not by the number of tokens
};

// What one rank did, added up over calls.
struct GenerationStats {
  int64_t prompt_tokens = 0,
          new_tokens = 0;  // of all ranks; new: without the tokens of first passes
  double prompt_seconds = 0, new_token_seconds = 0;  // first passes, later passes
  size_t cache_bytes = 0;                            // of the largest batch
};

// Ids that `use` gets as soon as they are known: (index of the prompt, token).
using UseToken = std::function<void(size_t prompt, int32_t token)>;

// Collective; every rank passes the same arguments and gets all texts. The model sees the last
// Session::max_length() tokens of a text. first_sample: the number of the first prompt for
// random numbers. Error for an empty prompt.
std::vector<Generated> generate_tokens(Session& session, const GenerationOptions& options,
                                       const std::vector<std::vector<int32_t>>& prompts,
                                       const UseToken& use = {}, uint64_t first_sample = 0,
                                       GenerationStats* stats = nullptr);

// The same, `batch` prompts at a time. `done` gets each text when its batch is.
std::vector<Generated> generate_in_batches(
    Session& session, const GenerationOptions& options,
    const std::vector<std::vector<int32_t>>& prompts, size_t batch, const UseToken& use = {},
    const std::function<void(size_t prompt, const Generated& text)>& done = {},
    GenerationStats* stats = nullptr);

}  // namespace fsdp::tools
