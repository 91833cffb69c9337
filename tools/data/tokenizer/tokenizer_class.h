// The classes of transformers' tokenizers that change what a tokenizer.json says, as of version
// 4.57.1, and which of them a folder means. What a class and the keys do: class_rules.h. The manual
// has this table, too (README.md); tests hold both to transformers
// (tests/fixtures/tokenizers/classes.json).
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"

namespace fsdp::data {

// A row of tokenizer_classes.json, which lasts as long as the program. The members after the name
// are what the class takes where no file has the key; "": none.
struct TokenizerClass {
  std::string_view name;  // without "Fast"
  std::string_view bos = "", eos = "", unk = "", pad = "";
  bool frames = false;      // add_bos_token and add_eos_token replace the post-processor
  bool adds_begin = false;  // add_bos_token
  // Without add_prefix_space the pre-tokenizer stays as tokenizer.json says. Otherwise it is false.
  bool leaves_prefix = false;
  bool prefixes_nested = false;   // add_prefix_space: true also counts within a Sequence
  bool makes_special = false;     // bos, eos, unk and pad given as text are special tokens
  bool infills = false;           // prefix_token, middle_token, suffix_token, eot_token are special
  bool refuses_begin = false;     // add_bos_token: true is an error
  bool keeps_no_padding = false;  // "padding" of the tokenizer.json names no pad_token
  std::vector<std::string> model_types = {};  // of config.json
};

std::span<const TokenizerClass> tokenizer_classes();  // PreTrainedTokenizer is the first
// By a name with or without "Fast"; null: none.
const TokenizerClass* tokenizer_class(std::string_view name);

struct ChosenClass {
  const TokenizerClass* of = nullptr;  // null: no file beside the tokenizer.json says anything
  std::string note;                    // where another reading is plausible; "": none
  std::string named = {};              // the tokenizer_class that a file names; "": none does
};

// As AutoTokenizer chooses: tokenizer_class of the tokenizer_config.json, which is `config` here
// (null: there is no such file), else of the config.json in `folder`, else by its model_type.
ChosenClass choose_class(const std::filesystem::path& folder, const Json& config);

}  // namespace fsdp::data
