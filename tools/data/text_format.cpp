// Endings, and what the beginnings of files look like. Contract: tools/data/text_format.h.
#include "tools/data/text_format.h"

#include <algorithm>

#include "core/error.h"
#include "core/io/hub_files.h"
#include "core/text/shell_word.h"
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

// What other files begin with. In `command` FILE is the file, and OUT the file that the command
// makes: the same name with `ending` in place of its own ending. Without OUT: it has a name of its
// own; a command with an `ending` wants the file to have that ending, and else OUT.
struct Kind {
  std::string_view begin;
  size_t at;
  std::string_view name, command, ending;
};
using namespace std::string_view_literals;
constexpr std::array<Kind, 20> kKinds = {{
    {"\x1f\x8b"sv, 0, "a file compressed by gzip", "gzip -dk FILE", ".gz"},
    {"\x28\xb5\x2f\xfd"sv, 0, "a file compressed by zstd (Zstandard)", "zstd -d FILE", ".zst"},
    {"\3757zXZ\0"sv, 0, "a file compressed by xz", "xz -dk FILE", ".xz"},
    {"1AY&SY"sv, 4, "a file compressed by bzip2", "bzip2 -dk FILE", ".bz2"},
    {"\x04\x22\x4d\x18"sv, 0, "a file compressed by lz4", "lz4 -d FILE", ".lz4"},
    {"7z\xbc\xaf\x27\x1c"sv, 0, "an archive of 7-Zip", "7z x FILE", ""},
    {"PK\x03\x04"sv, 0, "an archive of zip (as .xlsx, .docx and .npz are)", "unzip FILE", ""},
    {"ustar"sv, 257, "an archive of tar", "tar -xf FILE", ""},
    {"PAR1"sv, 0, "a table of Parquet",
     "python3 -c 'import sys, datasets as d; "
     "d.Dataset.from_parquet(sys.argv[1]).to_json(sys.argv[2])' FILE OUT",
     ".jsonl"},
    {"ARROW1\0\0"sv, 0, "a table of Arrow (Feather)",
     "python3 -c 'import sys, pandas as p; p.read_feather(sys.argv[1]).to_json(sys.argv[2], "
     "orient=\"records\", lines=True)' FILE OUT",
     ".jsonl"},
    {"\xff\xff\xff\xff"sv, 0, "a table of Arrow (of datasets)",
     "python3 -c 'import sys, datasets as d; "
     "d.Dataset.from_file(sys.argv[1]).to_json(sys.argv[2])' FILE OUT",
     ".jsonl"},
    {"\x89HDF\r\n"sv, 0, "a file of HDF5", "", ""},
    {"\x93NUMPY"sv, 0, "an array of NumPy", "", ""},
    {"SQLite format 3\0"sv, 0, "a data base of SQLite",
     "sqlite3 -csv -header FILE 'SELECT * FROM the_table' > OUT", ".csv"},
    {"Obj\x01"sv, 0, "a file of Avro", "", ""},
    {"%PDF-"sv, 0, "a PDF", "pdftotext FILE OUT", ".txt"},
    {"\xff\xfe\0\0"sv, 0, "UTF-32", "iconv -f UTF-32 -t UTF-8 FILE > OUT", ".utf8"},
    {"\0\0\xfe\xff"sv, 0, "UTF-32", "iconv -f UTF-32 -t UTF-8 FILE > OUT", ".utf8"},
    {"\xff\xfe"sv, 0, "UTF-16", "iconv -f UTF-16 -t UTF-8 FILE > OUT", ".utf8"},
    {"\xfe\xff"sv, 0, "UTF-16", "iconv -f UTF-16 -t UTF-8 FILE > OUT", ".utf8"},
}};
constexpr Kind kUtf16Little = {"", 0, "UTF-16", "iconv -f UTF-16LE -t UTF-8 FILE > OUT", ".utf8"};
constexpr Kind kUtf16Big = {"", 0, "UTF-16", "iconv -f UTF-16BE -t UTF-8 FILE > OUT", ".utf8"};

std::string replaced(std::string text, std::string_view word, const std::string& by) {
  const size_t at = text.find(word);
  return at == std::string::npos ? text : text.replace(at, word.size(), by);
}

std::string text_of(const Kind& kind, const std::filesystem::path& file) {
  const std::string what = "expected a text of UTF-8, got " + std::string(kind.name);
  if (kind.command.empty())
    return what + "; write it as JSONL or CSV with the program that made it";
  std::string command(kind.command), ending(kind.ending);
  const std::string own = file.extension().string();
  const bool makes_name = command.find("OUT") == std::string::npos;
  if (makes_name && !ending.empty() && own != ending) {
    command = command.substr(0, command.find(' ')) + " -dc FILE > OUT";
    ending = ".unpacked";
  }
  // A text keeps the ending that says its format: notes.txt, notes.utf8.txt.
  if (ending == ".utf8" || ending == ".unpacked") ending += own;
  const auto out = std::filesystem::path(file).replace_extension(ending);
  command = replaced(command, "OUT", shell_word(out.string()));
  return fmt::format("{}; convert it: {}", what,
                     replaced(command, "FILE", shell_word(file.string())));
}

// Characters of ASCII that a text has, each with a zero byte at this place of the two.
bool has_zeros(std::string_view text, size_t place) {
  if (text.size() < 4) return false;
  const size_t looked_at = std::min<size_t>(text.size(), 64) / 2 * 2;
  for (size_t i = 0; i < looked_at; ++i) {
    const bool of_text =
        (text[i] >= ' ' && text[i] <= '~') || text[i] == '\n' || text[i] == '\r' || text[i] == '\t';
    if (i % 2 == place ? text[i] != '\0' : !of_text) return false;
  }
  return true;
}

bool fits(const Kind& kind, std::string_view text) {
  if (text.size() < kind.at || text.substr(kind.at, kind.begin.size()) != kind.begin) return false;
  if (kind.begin == "PAR1") return text.ends_with("PAR1");  // a text may begin with these letters
  return kind.begin != "1AY&SY" || text.starts_with("BZh");
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
  const std::string_view text = file.text();
  if (std::string other = stand_in(text); !other.empty()) return other;
  for (const Kind& kind : kKinds) {
    if (fits(kind, text)) return text_of(kind, file.path());
  }
  if (has_zeros(text, 1)) return text_of(kUtf16Little, file.path());
  return has_zeros(text, 0) ? text_of(kUtf16Big, file.path()) : "";
}

void check_kind(const MappedFile& file, TextFormat format) {
  const std::string name = file.path().string(), other = other_kind(file);
  FSDP_CHECK(other.empty(), "{}: {}", name, other);
  if (format != TextFormat::kAuto) return;
  const TextFormat by_ending = format_of(file.path(), format);
  const size_t zero = file.text().substr(0, kBeginning).find('\0');
  FSDP_CHECK(by_ending != TextFormat::kText || zero == std::string_view::npos,
             "{}: expected a text of UTF-8, got a binary file (a zero byte at offset {}); "
             "data.format: text takes it as it is",
             name, zero);
  const bool may_hide_rows = by_ending == TextFormat::kText || by_ending == TextFormat::kCsv ||
                             by_ending == TextFormat::kTsv;
  FSDP_CHECK(!may_hide_rows || !begins_with_row(without_byte_order_mark(file.text())),
             "{}: it begins with a row of JSON, but its name is that of a {}: data.format: jsonl "
             "reads rows, data.format: {} takes it as it is",
             name, by_ending == TextFormat::kText ? "plain text" : "table", name_of(by_ending));
}

}  // namespace fsdp::data
