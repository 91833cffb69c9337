// Files of a model folder besides its weights: its licence, its card, the code that its config.json
// names; and the special tokens that config.json and generation_config.json name, compared with
// the special tokens of the tokenizer that a model was trained with. transformers' Trainer puts the
// tokenizer's into both (_align_special_tokens, since 4.56): a model ends a text where it was
// trained to. Not here: the tokenizer's files (tools/data/tokenizer), weights and configuration
// (save_model.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/data/tokenizer/tokenizer.h"

namespace fsdp::tools {

// What differs, a line a key: "eos_token_id: 1 (config.json 0, generation_config.json 0)". Tokens
// that the model has no row for do not count, and neither does what the tokenizer leaves open.
std::vector<std::string> token_differences(const std::filesystem::path& model_folder,
                                           const data::NamedTokens& tokens);
// Puts the tokenizer's tokens into both files, if they are not there: eos_token_id of
// generation_config.json becomes a list that begins with it and keeps those before. A file with
// nothing to change keeps its bytes. Returns what differed.
std::vector<std::string> align_tokens(const std::filesystem::path& model_folder,
                                      const data::NamedTokens& tokens);

// LICENSE, NOTICE, USE_POLICY and the like, README.md and, where config.json or
// tokenizer_config.json has auto_map, the modules of Python. A file that is there already stays.
void copy_companion_files(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace fsdp::tools
