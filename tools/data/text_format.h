// Which format a file of the data set has: by data.format, else by the ending of its name; and that
// what is in the file can be that format. Not here: reading it (text_source.h), which files a
// folder means (text_files.h).
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/io/file.h"

namespace fsdp::data {

// kJsonl: rows of JSON, one a line, in an array, or one behind another (row_spans.h). kCsv, kTsv:
// rows of a table with a header (table.h). kSynthetic: no files, but random tokens (sequences.h).
// kTokens: files of tokens, whose format has a name of its own (token_file.h).
enum class TextFormat : uint8_t {
  kAuto,
  kText,
  kJsonl,
  kCsv,
  kTsv,
  kAlpaca,
  kSquad,
  kTokens,
  kSynthetic
};
inline constexpr std::array kTextFormats = {
    TextFormat::kAuto,  TextFormat::kText,   TextFormat::kJsonl,
    TextFormat::kCsv,   TextFormat::kTsv,    TextFormat::kAlpaca,
    TextFormat::kSquad, TextFormat::kTokens, TextFormat::kSynthetic};
std::string_view name_of(TextFormat format);

// kAuto: by the ending, in small or capital letters; kText for endings that are not known.
TextFormat format_of(const std::filesystem::path& file, TextFormat format);
// The endings that are known, for people, and whether a name has one of them.
std::string data_endings();
bool has_data_ending(const std::filesystem::path& file);

// What a file is that is no text of UTF-8 (core/io/file_kind.h), with the command that makes one of
// it; "": nothing speaks against it.
std::string other_kind(const MappedFile& file);
// Error for such a file. Where the ending alone says text (kAuto): error for a file that begins
// with a row of JSON, a web page, and one with zero bytes; kText takes these as they are.
void check_kind(const MappedFile& file, TextFormat format);

}  // namespace fsdp::data
