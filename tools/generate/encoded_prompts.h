// What generate continues: prompts as ids of a model, and the tokens that end a text.
// Not here: files of prompts (tools/data/prompts.h), the loop over new tokens (generation.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/data/prompts.h"
#include "tools/data/tokenizer/tokenizer.h"
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

}  // namespace fsdp::tools
