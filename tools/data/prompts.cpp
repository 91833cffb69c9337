// Lines and rows of prompt files.
#include "tools/data/prompts.h"

#include <limits>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tools/data/json_row.h"
#include "tools/data/row_spans.h"
#include "tools/data/table.h"
#include "tools/data/text_format.h"
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

Prompt prompt_of_row(const Json& row, const std::string& where) {
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

// A prompt may be JSON, but not such JSON as a file of rows begins with.
void check_no_rows(std::string_view text, const std::string& file) {
  const std::string_view row = first_object(text);
  try {
    if (row.empty()) return;
    prompt_of_row(parse_json_row(row, ""), "");
  } catch (const Error&) {
    return;
  }
  fail(
      "{}: it begins with a row of JSON, but its name is that of a plain text: rows are read of a "
      "file whose name ends with .jsonl",
      file);
}

}  // namespace

std::vector<Prompt> read_prompts(const std::filesystem::path& file) {
  const MappedFile mapped(file);
  const std::string other = other_kind(mapped);
  FSDP_CHECK(other.empty(), "{}: {}", file.string(), other);
  const std::string_view text = without_byte_order_mark(mapped.text());
  const TextFormat format = format_of(file, TextFormat::kAuto);
  std::vector<Prompt> prompts;
  const auto each = [&](const std::function<Prompt(std::string_view, const std::string&)>& read) {
    return [&, read](const RowSpan& row) {
      const std::string where = fmt::format("{}:{}", file.string(), row.line);
      FSDP_CHECK(first_invalid_utf8(row.text) == row.text.size(), "{}: invalid UTF-8", where);
      prompts.push_back(read(row.text, where));
    };
  };
  if (format == TextFormat::kText) {
    check_no_rows(text, file.string());
    for_each_span(text, Spans::kLines, file.string(), each([](auto line, const auto& where) {
                    if (line.ends_with('\r')) line.remove_suffix(1);
                    return Prompt{where, std::string(line), std::nullopt};
                  }));
  } else if (format == TextFormat::kJsonl) {
    for_each_span(text, spans_of(text), file.string(), each([](auto row, const auto& where) {
                    return prompt_of_row(parse_json_row(row, where), where);
                  }));
  } else {
    const Table table(text, traits_of(format).separator, file.string());
    table.for_each_record(each([&](auto row, const auto& where) {
      return prompt_of_row(table.row_of(row, where), where);
    }));
  }
  FSDP_CHECK(!prompts.empty(), "{}: no prompts", file.string());
  return prompts;
}

}  // namespace fsdp::data
