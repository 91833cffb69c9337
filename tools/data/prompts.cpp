// Lines and rows of prompt files.
#include "tools/data/prompts.h"

#include <limits>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tools/data/text_source.h"
#include "tools/data/tokenizer/utf8.h"

namespace fsdp::data {
namespace {

std::vector<int32_t> ids_of(const Json& value, const std::string& where) {
  FSDP_CHECK(value.is_array() && !value.empty(),
             "{}: \"ids\": expected a list of token ids, got {}", where, value.dump());
  std::vector<int32_t> ids;
  for (const Json& id : value) {
    const bool fits = id.is_number_integer() && id.get<int64_t>() >= 0 &&
                      id.get<int64_t>() <= std::numeric_limits<int32_t>::max();
    FSDP_CHECK(fits, "{}: \"ids\": expected token ids, got {}", where, id.dump());
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

Prompt prompt_of_row(std::string_view line, const std::string& where) {
  const Json row = parse_json_line(line, where);
  FSDP_CHECK(row.is_object(), "{}: expected an object, got {}", where, row.type_name());
  for (const auto& item : row.items()) {
    FSDP_CHECK(item.name == "text" || item.name == "ids",
               "{}: unknown key \"{}\": expected \"text\" or \"ids\"", where, item.name);
  }
  FSDP_CHECK(row.size() == 1, "{}: expected \"text\" or \"ids\", got {}", where,
             row.empty() ? "neither" : "both");
  if (row.contains("ids")) return {where, "", ids_of(row["ids"], where)};
  FSDP_CHECK(row["text"].is_string(), "{}: \"text\": expected a string, got {}", where,
             row["text"].dump());
  return {where, row["text"].get<std::string>(), std::nullopt};
}

}  // namespace

std::vector<Prompt> read_prompts(const std::filesystem::path& file) {
  const std::string content = read_file(file);
  const bool jsonl = format_of(file, TextFormat::kAuto) == TextFormat::kJsonl;
  std::vector<Prompt> prompts;
  int64_t number = 0;
  for (size_t begin = 0; begin < content.size(); ++begin) {
    const size_t end = std::min(content.find('\n', begin), content.size());
    std::string_view line = std::string_view(content).substr(begin, end - begin);
    begin = end;
    const std::string where = fmt::format("{}:{}", file.string(), ++number);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    FSDP_CHECK(first_invalid_utf8(line) == line.size(), "{}: invalid UTF-8", where);
    prompts.push_back(jsonl ? prompt_of_row(line, where)
                            : Prompt{where, std::string(line), std::nullopt});
  }
  FSDP_CHECK(!prompts.empty(), "{}: no prompts", file.string());
  return prompts;
}

}  // namespace fsdp::data
