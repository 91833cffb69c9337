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

// The format of files whose names end so; null: none is known.
const FormatTraits* by_ending(const std::filesystem::path& file) {
  std::string ending = file.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  const auto has = [&](const FormatTraits& known) {
    return !ending.empty() && fmt::format("{} ", known.endings).find(ending + " ") != ending.npos;
  };
  const auto* found = std::find_if(kTextFormats.begin(), kTextFormats.end(), has);
  return found == kTextFormats.end() ? nullptr : found;
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

TextFormat format_of(const std::filesystem::path& file, TextFormat format) {
  if (format != TextFormat::kAuto) return format;
  const FormatTraits* const known = by_ending(file);
  return known ? known->format : TextFormat::kText;
}

std::string data_endings() {
  std::vector<std::string_view> all;
  for (const FormatTraits& known : kTextFormats) {
    for (std::string_view rest = known.endings; !rest.empty();) {
      const size_t end = std::min(rest.find(' '), rest.size());
      all.push_back(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  const std::string_view last = all.back();
  all.pop_back();
  return fmt::format("{} or {}", fmt::join(all, ", "), last);
}

bool has_data_ending(const std::filesystem::path& file) { return by_ending(file) != nullptr; }

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
