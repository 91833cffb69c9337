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
  kJsonl,
  kCsv,
  kTsv,
  kText,
  kAlpaca,
  kSquad,
  kMessages,
  kTokens,
  kSynthetic
};

// What a format is. A further one: a value of the enum and its row here; a reader in
// text_source.cpp, where its rows lie in a file as those of no other format do.
struct FormatTraits {
  TextFormat format;
  std::string_view name;               // as a value of data.format
  std::string_view help = "";          // "": that of the next format
  std::string_view endings = "";       // ".jsonl .json": of its files' names
  char separator = '\0';               // of the cells of a table
  std::string_view row_template = "";  // by its name; "": a row's text is one field
};
inline constexpr std::array kTextFormats = {
    FormatTraits{TextFormat::kAuto, "auto", "by the file's ending"},
    FormatTraits{TextFormat::kJsonl, "jsonl", "rows of JSON, one a line or in an array",
                 ".jsonl .json .ndjson .jsonlines"},
    FormatTraits{TextFormat::kCsv, "csv", "", ".csv", ','},
    FormatTraits{TextFormat::kTsv, "tsv", "a table with a header", ".tsv", '\t'},
    FormatTraits{TextFormat::kText, "text", "whatever is in the file", ".txt"},
    FormatTraits{.format = TextFormat::kAlpaca,
                 .name = "alpaca",
                 .help = "rows of instruction, input and output",
                 .row_template = "alpaca"},
    FormatTraits{.format = TextFormat::kSquad,
                 .name = "squad",
                 .help = "the questions of a file of SQuAD v1.1, or of the hub's rows",
                 .row_template = "squad"},
    FormatTraits{.format = TextFormat::kMessages,
                 .name = "messages",
                 .help = "conversations: rows of messages, or of prompt and completion; auto tells "
                         "them by the first row"},
    FormatTraits{TextFormat::kTokens, ""},
    FormatTraits{TextFormat::kSynthetic, "synthetic",
                 "random tokens by train.seed, without files"}};

constexpr const FormatTraits& traits_of(TextFormat format) {
  return kTextFormats[static_cast<size_t>(format)];
}
inline std::string_view name_of(TextFormat format) { return traits_of(format).name; }
inline bool is_table(TextFormat format) { return traits_of(format).separator != '\0'; }

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
