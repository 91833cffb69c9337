// Endings, and what the beginnings of files look like. Contract: tools/data/text_format.h.
#include "tools/data/text_format.h"

#include <algorithm>

#include "core/error.h"
#include "core/io/file_kind.h"
#include "tools/data/json_row.h"
#include "tools/data/row_spans.h"
#include "tools/data/tokenizer/utf8.h"

namespace fsdp::data {
namespace {

struct Ending {
  std::string_view text;
  TextFormat format;
};
constexpr std::array<Ending, 7> kEndings = {{{".jsonl", TextFormat::kJsonl},
                                             {".json", TextFormat::kJsonl},
                                             {".ndjson", TextFormat::kJsonl},
                                             {".jsonlines", TextFormat::kJsonl},
                                             {".csv", TextFormat::kCsv},
                                             {".tsv", TextFormat::kTsv},
                                             {".txt", TextFormat::kText}}};

const Ending* ending_of(const std::filesystem::path& file) {
  std::string text = file.extension().string();
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  const auto* found = std::find_if(kEndings.begin(), kEndings.end(),
                                   [&](const Ending& known) { return known.text == text; });
  return found == kEndings.end() ? nullptr : found;
}

// How much of a file is looked at for rows of JSON and for zero bytes.
constexpr size_t kLongestRow = size_t{16} << 20;
constexpr size_t kBeginning = 4096;

// A longer row is told by its beginning.
bool begins_with_row(std::string_view text) {
  const std::string_view beginning = text.substr(0, kLongestRow), row = first_object(beginning);
  const bool is_cut = !row.empty() && row.end() == beginning.end() && text.size() > kLongestRow;
  if (is_cut) return !first_member(row).empty();
  try {
    return !row.empty() && !parse_json_row(row, "").empty();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::string_view name_of(TextFormat format) {
  constexpr std::string_view kNames[] = {"auto",   "text",  "jsonl", "csv",      "tsv",
                                         "alpaca", "squad", "",      "synthetic"};
  static_assert(std::size(kNames) == kTextFormats.size());
  return kNames[static_cast<size_t>(format)];
}

TextFormat format_of(const std::filesystem::path& file, TextFormat format) {
  if (format != TextFormat::kAuto) return format;
  const Ending* const known = ending_of(file);
  return known ? known->format : TextFormat::kText;
}

std::string data_endings() {
  std::string out;
  for (const Ending& known : kEndings) {
    const bool last = &known == &kEndings.back();
    out += (out.empty() ? "" : last ? " or " : ", ") + std::string(known.text);
  }
  return out;
}

bool has_data_ending(const std::filesystem::path& file) { return ending_of(file) != nullptr; }

std::string other_kind(const MappedFile& file) {
  return fsdp::other_kind(file.text(), file.path(), Wanted::kText);
}

void check_kind(const MappedFile& file, TextFormat format) {
  const std::string_view text = file.text();
  const std::string name = file.path().string();
  const std::string other = other_kind(file);
  FSDP_CHECK(other.empty(), "{}: {}", name, other);
  const TextFormat found = format_of(file.path(), format);
  const bool decided = format != TextFormat::kAuto, is_text = found == TextFormat::kText;
  const bool may_be_page = decided ? is_text : is_text && !has_data_ending(file.path());
  FSDP_CHECK(may_be_page || !is_web_page(text),
             "{}: it begins as a web page (HTML), which a download without its login leaves{}",
             name, is_text ? "; data.format: text takes it as it is" : "");
  if (decided) return;
  const size_t zero = text.substr(0, kBeginning).find('\0');
  FSDP_CHECK(found == TextFormat::kJsonl || zero == std::string_view::npos,
             "{}: expected a text of UTF-8, got a binary file (a zero byte at offset {}); "
             "data.format: {} takes it as it is",
             name, zero, name_of(found));
  const bool may_hide_rows = found != TextFormat::kJsonl;
  FSDP_CHECK(!may_hide_rows || !begins_with_row(without_byte_order_mark(text)),
             "{}: it begins with a row of JSON, but its name is that of a {}: data.format: jsonl "
             "reads rows, data.format: {} takes it as it is",
             name, is_text ? "plain text" : "table", name_of(found));
}

}  // namespace fsdp::data
