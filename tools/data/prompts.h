// Files of prompts for generation: a text file has one a line (blank lines are skipped), a file of
// JSON one a row: {"text": "Once upon"} or, as token ids, {"ids": [1, 5]}; a table one a row of its
// column text. Which a file is, its ending says (text_format.h). Errors name file and line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::data {

struct Prompt {
  std::string where;  // "file:line", for errors
  std::string text;
  std::optional<std::vector<int32_t>> ids;  // instead of the text
};

// Error for a missing file or one without prompts, invalid UTF-8, a malformed row, a key that is
// neither text nor ids, both or none of them.
std::vector<Prompt> read_prompts(const std::filesystem::path& file);

}  // namespace fsdp::data
