// Contract: tools/data/row_hints.h.
#include "tools/data/row_hints.h"

#include <algorithm>

#include "core/error.h"
#include "core/text/shell_word.h"
#include "tools/data/json_row.h"
#include "tools/data/row_spans.h"

namespace fsdp::data {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

// Whether a text is one object of JSON, with nothing but blanks behind it.
bool is_one_object(std::string_view text) {
  const std::string_view object = first_object(text);
  return !object.empty() && text.find_first_not_of(kBlank) == text.find('{') &&
         text.find_first_not_of(kBlank, static_cast<size_t>(object.end() - text.begin())) ==
             text.npos;
}

// Where in an object the longest array of objects is: its name, and its path for jq; "": nowhere.
std::string path_to_rows(std::string_view text, std::string_view& rows_in) {
  std::string path;
  size_t longest = 0;
  if (!is_one_object(text)) return path;
  try {
    for_each_member({text, 1, 0}, "", [&](std::string_view name, const RowSpan& value) {
      const size_t first = value.text.find_first_not_of(" \t\r\n[");
      const bool rows = value.text.starts_with('[') && first != value.text.npos &&
                        value.text[first] == '{' && value.text.size() > longest;
      if (!rows) return;
      longest = value.text.size();
      rows_in = name;
      const bool plain = name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == name.npos;
      path = plain ? fmt::format(".{}[]", name) : fmt::format(".[\"{}\"][]", name);
      // As the server of the hub's data sets answers.
      if (first_member(value.text.substr(first), {"row"}) == "row") path += ".row";
    });
  } catch (const Error&) {
    return "";
  }
  return path;
}

// Columns of one length, as arrays or as objects from a row's name to its value.
bool is_columns(const Json& object) {
  if (object.size() < 2) return false;
  const Json& first = *object.begin();
  return std::all_of(object.begin(), object.end(), [&](const Json& column) {
    return (first.is_array() ? column.is_array() : column.is_object()) && column.size() > 1 &&
           column.size() == first.size();
  });
}

// pandas' form of the same in three parts.
bool is_split(const Json& object) {
  const Json *columns = object.find("columns"), *data = object.find("data");
  return columns && columns->is_array() && data && data->is_array() && object.contains("index");
}

}  // namespace

std::string hint_of_columns(std::string_view text, const std::string& file) {
  constexpr size_t kLongest = size_t{64} << 20;
  const std::string_view name = first_member(text);
  const auto end = static_cast<size_t>(name.data() + name.size() - text.data());
  const size_t begin = name.empty() ? text.npos : text.find_first_not_of("\": \t\r\n", end);
  const bool may_be = begin != text.npos && (text[begin] == '[' || text[begin] == '{') &&
                      text.size() <= kLongest && is_one_object(text);
  if (!may_be) return "";
  try {
    const Json object = parse_json_row(text, "");
    const bool split = is_split(object);
    if (!split && !is_columns(object)) return "";
    return fmt::format(
        "it holds columns, where rows are read; convert it: python3 -c 'import sys, pandas as p; "
        "p.read_json(sys.argv[1], orient=\"{}\", dtype=False, convert_dates=False)"
        ".to_json(sys.argv[2], orient=\"records\", lines=True)' {} {}",
        split ? "split" : "columns", shell_word(file),
        shell_word(std::filesystem::path(file).replace_extension(".rows.jsonl").string()));
  } catch (const Error&) {
    return "";
  }
}

std::string hint_of_rows(std::string_view text, const std::string& file, TextFormat format,
                         bool has_template) {
  const std::string_view begin = text.substr(0, 4096);
  const auto has = [&](std::string_view field) { return begin.find(field) != begin.npos; };
  if (is_table(format)) {
    if (has_template) return "";
    const std::string_view header = begin.substr(0, begin.find_first_of("\r\n"));
    if (has("instruction") && has("output"))
      return "its rows look like Alpaca's: data.format: alpaca";
    return format == TextFormat::kCsv && header.find(',') == header.npos &&
                   header.find(';') != header.npos
               ? "its cells seem to stand between ; where a CSV file has ,"
               : "";
  }
  if (const size_t zero = text.find('\0'); zero != text.npos) {
    return fmt::format("byte {} is zero, as where a loss of power, or a full disk, cut a file",
                       zero);
  }
  if (format == TextFormat::kSquad) return "";
  if (!has_template && has("\"paragraphs\"")) {
    return "it looks like a file of SQuAD: data.format: squad";
  }
  if (has("\"answer_start\"")) return "its rows look like SQuAD's: data.format: squad";
  if (!has_template && has("\"instruction\"")) {
    return "its rows look like Alpaca's: data.format: alpaca";
  }
  if (std::string columns = hint_of_columns(text, file); !columns.empty()) return columns;
  std::string_view rows_in;
  const std::string path = path_to_rows(text, rows_in);
  if (path.empty()) return "";
  return fmt::format("its rows seem to be in \"{}\": jq -c {} {} makes a line of each", rows_in,
                     shell_word(path), shell_word(file));
}

}  // namespace fsdp::data
