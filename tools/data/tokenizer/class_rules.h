// What the files beside a tokenizer.json change: tokenizer_config.json, special_tokens_map.json and
// added_tokens.json, as the class of transformers reads them that the folder means
// (tokenizer_class.h). Read next: class_rules.cpp ([Note: which tokens are added]).
// Not here: what an added token does (added_tokens.h).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "tools/data/tokenizer/added_tokens.h"

namespace fsdp::data {

struct ClassRules {
  std::string name;                // of the class; "": there are no rules
  std::vector<AddedToken> tokens;  // to be added after those of the tokenizer.json
  // Whether `begin` and `end` stand around a text in place of what the post-processor says.
  bool frames = false;
  std::optional<std::string> begin, end;  // where add_bos_token and add_eos_token say so
  // bos_token, eos_token and pad_token, of file or class
  std::optional<std::string> begin_of_text, end_of_text, padding;
  bool end_is_named = false, padding_is_named = false;  // by a file
  bool begin_is_asked_for = false;  // add_bos_token: true, which may have no effect
  bool split_special_tokens = false;
  bool clean_up = false;           // clean_up_tokenization_spaces
  std::string components;          // of the tokenizer.json that are others now, as text
  std::vector<std::string> notes;  // where another reading is plausible
};

// `folder`: of the files; "": none. `tokenizer`: the tokenizer.json, or a like one made in memory,
// whose components change with the class. Error where transformers raises one and no reading is
// plausible.
ClassRules read_class_rules(const std::filesystem::path& folder, Json& tokenizer);

}  // namespace fsdp::data
