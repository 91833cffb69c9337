// What a generation needs of a model's folder and of its prompts, found before any rank computes:
// prompts as ids of the model, the tokens that end a text, notes. Read next: generation.h (the loop
// over new tokens). Not here: files of prompts (tools/data/prompts.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/data/prompts.h"
#include "tools/data/tokenizer/tokenizer.h"
#include "tools/generate/generation.h"
#include "tools/model_folders/load_model.h"

namespace fsdp::tools {

struct EncodedPrompts {
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::string> texts;  // as given; of ids: what they stand for
  std::string tokenizer_name;
  std::unique_ptr<data::Tokenizer> tokenizer;  // null: the user gave ids and gets ids
  std::string note;                            // on the tokenizer, where it may surprise
  std::string doubled;  // on the first prompt that writes a token which the tokenizer adds, too
};

// `tokenizer`: "" for the model folder's. No tokenizer is opened where all prompts are ids and none
// is named. Error names the prompt's place: an id outside the vocabulary, more tokens than the
// model has positions, an empty text where the tokenizer has no end-of-text.
EncodedPrompts encode_prompts(const std::vector<data::Prompt>& given, const std::string& tokenizer,
                              const ModelSource& source, const models::ModelConfig& model);

// The two steps of encode_prompts: a tokenizer without prompts, and prompts for what has one or,
// where all prompts are ids, has none.
EncodedPrompts open_tokenizer(const std::string& tokenizer, const ModelSource& source,
                              const models::ModelConfig& model);
void add_prompts(const std::vector<data::Prompt>& given, const models::ModelConfig& model,
                 EncodedPrompts& prompts);

// `stop` has what --stop-ids says. To it come, unless `ignore_end`, the end tokens of the model's
// folder and of the tokenizer. Error for an id outside the vocabulary.
void add_stop_ids(bool ignore_end, const ModelSource& source, const models::ModelConfig& model,
                  const EncodedPrompts& prompts, std::vector<int32_t>& stop);

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
