// What a generation needs of a model's folder and of its prompts, found before any rank computes.
// Read next: generation.h (the loop over new tokens).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/generate/encoded_prompts.h"
#include "tools/generate/generation.h"

namespace fsdp::tools {

struct GenerationPlan {
  ModelSource source;
  models::ModelConfig model;
  EncodedPrompts prompts;
  GenerationOptions options;       // with all stop tokens, and the tokenizer's vocabulary
  int64_t longest = 0;             // tokens that a text may grow to
  int64_t seen = 0;                // of them the model sees the last ones
  std::vector<std::string> notes;  // on the folder's files and the tokenizer
};

// `tokenizer`, `ignore_end`: as of encode_prompts and add_stop_ids, whose errors come from here,
// too. Error for a model that does not predict the next token.
GenerationPlan plan_generation(const ModelSource& source, const std::vector<data::Prompt>& prompts,
                               const std::string& tokenizer, bool ignore_end,
                               const GenerationOptions& options);

// The same of prompts that depend on the tokenizer, such as texts that are cut where they are too
// long. There always is a tokenizer then.
using MakePrompts = std::function<std::vector<data::Prompt>(const data::Tokenizer& tokenizer,
                                                            const models::ModelConfig& model)>;
GenerationPlan plan_generation(const ModelSource& source, const MakePrompts& make_prompts,
                               const std::string& tokenizer, bool ignore_end,
                               const GenerationOptions& options);

// data::note_on_unknown_ids of the prompts and their texts; "": no tokenizer.
std::string note_on_unknown_ids(const EncodedPrompts& prompts, const std::vector<Generated>& texts);

}  // namespace fsdp::tools
