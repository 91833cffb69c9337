// The list of kinds, and commands for them. Contract: core/io/file_kind.h.
#include "core/io/file_kind.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/io/hub_files.h"
#include "core/io/odd_bytes.h"
#include "core/text/shell_word.h"

namespace fsdp {
namespace {

namespace fs = std::filesystem;
using namespace std::string_view_literals;

// What other files begin with. In a command FILE is the file, FOLDER its folder, NAME its name, and
// OUT the file that the command makes: the same name with `ending` in place of its own ending.
// Without OUT the command names its file itself; one with an `ending` wants the file to have that
// ending, and else OUT. `any`: the command helps whatever is wanted, and else only for texts.
struct Kind {
  std::string_view begin;
  size_t at;
  std::string_view name, command, ending;
  bool any = false;
  std::string_view weights = {};  // the command for weights
};

constexpr std::string_view kOfTorch =
    "python3 -c 'import sys, torch, safetensors.torch as s; d = torch.load(sys.argv[1], "
    "map_location=\"cpu\", weights_only=True); s.save_file({k: v.clone().contiguous() for k, v in "
    "d.items()}, sys.argv[2], {\"format\": \"pt\"})' FILE OUT";
constexpr std::string_view kOfNumpy =
    "python3 -c 'import sys, numpy, safetensors.numpy as s; "
    "s.save_file(dict(numpy.load(sys.argv[1])), sys.argv[2])' FILE OUT";
constexpr std::string_view kOfGguf =
    "python3 -c 'import sys, transformers as t; "
    "t.AutoModelForCausalLM.from_pretrained(sys.argv[1], gguf_file=sys.argv[2])"
    ".save_pretrained(\"NEW\")' FOLDER NAME";
constexpr std::string_view kOfKeras =
    "with transformers 4 and TensorFlow, python3 -c 'import sys, transformers as t; "
    "t.AutoModelForCausalLM.from_pretrained(sys.argv[1], from_tf=True)"
    ".save_pretrained(\"NEW\")' FOLDER";

// Kinds within kinds come first.
constexpr std::array<Kind, 24> kKinds = {{
    {"\x1f\x8b\x08"sv, 0, "a file compressed by gzip", "gzip -dk FILE", ".gz", true},
    {"\x28\xb5\x2f\xfd"sv, 0, "a file compressed by zstd (Zstandard)", "zstd -d FILE", ".zst",
     true},
    {"\3757zXZ\0"sv, 0, "a file compressed by xz", "xz -dk FILE", ".xz", true},
    {"1AY&SY"sv, 4, "a file compressed by bzip2", "bzip2 -dk FILE", ".bz2", true},
    {"\x04\x22\x4d\x18"sv, 0, "a file compressed by lz4", "lz4 -d FILE", ".lz4", true},
    {"7z\xbc\xaf\x27\x1c"sv, 0, "an archive of 7-Zip", "7z x FILE", "", true},
    {"/data.pkl"sv, 0, "tensors of torch.save (a zip with a pickle in it)", "", "", false,
     kOfTorch},
    {".npy"sv, 0, "arrays of NumPy (.npz)", "", "", false, kOfNumpy},
    {"PK\x03\x04"sv, 0, "an archive of zip (as .xlsx, .docx and files of torch.save are)",
     "unzip FILE", "", true},
    {"\x80"sv, 0, "a pickle of Python (as older versions of torch.save write)", "", "", false,
     kOfTorch},
    {"ustar"sv, 257, "an archive of tar", "tar -xf FILE", "", true},
    {"GGUF"sv, 0, "weights of llama.cpp (GGUF)", "", "", false, kOfGguf},
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
    {"\x89HDF\r\n"sv, 0, "a file of HDF5", "", "", false, kOfKeras},
    {"\x93NUMPY"sv, 0, "an array of NumPy", "", ""},
    {"SQLite format 3\0"sv, 0, "a data base of SQLite",
     "sqlite3 -csv -header FILE 'SELECT * FROM the_table' > OUT", ".csv"},
    {"Obj\x01"sv, 0, "a file of Avro", "", ""},
    {"%PDF-"sv, 0, "a PDF", "pdftotext FILE OUT", ".txt"},
    {"\xff\xfe\0\0"sv, 0, "UTF-32", "iconv -f UTF-32 -t UTF-8 FILE > OUT", ".utf8", true},
    {"\0\0\xfe\xff"sv, 0, "UTF-32", "iconv -f UTF-32 -t UTF-8 FILE > OUT", ".utf8", true},
    {"\xff\xfe"sv, 0, "UTF-16", "iconv -f UTF-16 -t UTF-8 FILE > OUT", ".utf8", true},
    {"\xfe\xff"sv, 0, "UTF-16", "iconv -f UTF-16 -t UTF-8 FILE > OUT", ".utf8", true},
}};
constexpr Kind kUtf16Little = {"",      0,   "UTF-16", "iconv -f UTF-16LE -t UTF-8 FILE > OUT",
                               ".utf8", true};
constexpr Kind kUtf16Big = {"",      0,   "UTF-16", "iconv -f UTF-16BE -t UTF-8 FILE > OUT",
                            ".utf8", true};

// The name of the first file in an archive of zip; "": no archive.
std::string_view first_in_zip(std::string_view bytes) {
  constexpr size_t kHeader = 30;  // the length of the name stands at 26
  if (bytes.size() < kHeader || !bytes.starts_with("PK\x03\x04")) return "";
  const size_t length =
      static_cast<uint8_t>(bytes[26]) + 256 * size_t{static_cast<uint8_t>(bytes[27])};
  return bytes.substr(kHeader, length);
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

// Safetensors: the length of the header, of any value, and its bracket.
bool begins_as_safetensors(std::string_view bytes) {
  return bytes.size() > 8 && bytes.substr(5, 4) == "\0\0\0{"sv;
}

bool fits(const Kind& kind, std::string_view bytes) {
  const bool in_zip = kind.begin == "/data.pkl" || kind.begin == ".npy";
  if (in_zip) return first_in_zip(bytes).ends_with(kind.begin);
  if (bytes.size() < kind.at || bytes.substr(kind.at, kind.begin.size()) != kind.begin)
    return false;
  if (kind.begin == "\x80") return bytes.size() > 1 && bytes[1] >= 2 && bytes[1] <= 5;
  if (kind.begin == "\xff\xff\xff\xff") return bytes.size() < 8 || bytes[7] == 0;  // a length
  // A text may begin with these letters.
  if (kind.begin == "PAR1") return bytes.ends_with("PAR1");
  if (kind.begin == "GGUF") return bytes.size() < 8 || bytes[4] == 0 || bytes[7] == 0;  // a version
  if (kind.begin == "%PDF-") return bytes.size() < 16 || !is_utf8(bytes);
  return kind.begin != "1AY&SY" || bytes.starts_with("BZh");
}

const Kind* kind_of(std::string_view bytes) {
  const auto* found =
      std::find_if(kKinds.begin(), kKinds.end(), [&](const Kind& k) { return fits(k, bytes); });
  if (found != kKinds.end()) return found;
  if (has_zeros(bytes, 1)) return &kUtf16Little;
  return has_zeros(bytes, 0) ? &kUtf16Big : nullptr;
}

std::string replaced(std::string text, std::string_view word, const std::string& by) {
  const size_t at = text.find(word);
  return at == std::string::npos ? text : text.replace(at, word.size(), by);
}

std::string folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path().string() : ".";
}

// The command of a kind for this file. What must keep its name takes the place of FILE at the end.
std::string command_for(const Kind& kind, const fs::path& file, Wanted wanted) {
  const bool of_weights = wanted == Wanted::kWeights && !kind.weights.empty();
  std::string command(of_weights                            ? kind.weights
                      : kind.any || wanted == Wanted::kText ? kind.command
                                                            : "");
  if (command.empty()) return "";
  std::string ending(kind.ending);
  const std::string own = file.extension().string();
  const bool makes_name = command.find("OUT") == std::string::npos;
  if (makes_name && !ending.empty() && own != ending) {
    command = command.substr(0, command.find(' ')) + " -dc FILE > OUT";
    ending = ".unpacked";
  }
  // A text keeps the ending that says its format: notes.txt, notes.utf8.txt.
  if (ending == ".utf8" || ending == ".unpacked") ending += own;
  if (of_weights) ending = ".converted" + own;
  const std::string out = shell_word(fs::path(file).replace_extension(ending).string());
  if (wanted != Wanted::kText && command.find("OUT") != std::string::npos) {
    command += fmt::format(" && mv {} {}", out, shell_word(file.string()));
  }
  // From the last word to the first: a name may hold such a word.
  if (command.find("FILE") == command.npos) {
    command = replaced(command, "NAME", shell_word(file.filename().string()));
    return replaced(command, "FOLDER", shell_word(folder_of(file)));
  }
  return replaced(replaced(command, "OUT", out), "FILE", shell_word(file.string()));
}

std::string name_of(Wanted wanted) {
  if (wanted == Wanted::kText) return "a text of UTF-8";
  return wanted == Wanted::kJson ? "JSON" : "a file of safetensors";
}

std::string text_of(const Kind& kind, const fs::path& file, Wanted wanted) {
  const std::string what = fmt::format("expected {}, got {}", name_of(wanted), kind.name);
  const std::string command = command_for(kind, file, wanted);
  if (!command.empty()) return fmt::format("{}; convert it: {}", what, command);
  return wanted == Wanted::kText ? what + "; write it as JSONL or CSV with the program that made it"
                                 : what;
}

// What brings a file of the hub.
std::string fetched(const fs::path& file) {
  return fmt::format(
      "fetch the file again: hf download ORG/NAME {} --local-dir {} (where the model needs a "
      "login, after hf auth login)",
      shell_word(file.filename().string()), shell_word(folder_of(file)));
}

std::string_view without_mark_and_blanks(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  return text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
}

bool begins_with(std::string_view text, std::string_view small_letters) {
  if (text.size() < small_letters.size()) return false;
  return std::equal(small_letters.begin(), small_letters.end(), text.begin(),
                    [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b - 'A' + 'a' : b); });
}

// The first line of a text, shortened; "": the bytes are no text.
std::string first_line(std::string_view bytes) {
  constexpr size_t kLongest = 80;
  const std::string_view begin = bytes.substr(0, kLongest);
  const auto is_text = [](char c) { return (c >= ' ' && c <= '~') || c == '\n' || c == '\r'; };
  if (!std::all_of(begin.begin(), begin.end(), is_text)) return "";
  return std::string(begin.substr(0, begin.find_first_of("\r\n")));
}

// Of what a server, or a disk without room, leaves in the place of a file.
std::string left_by_download(std::string_view bytes, Wanted wanted) {
  const std::string_view text = without_mark_and_blanks(bytes);
  if (is_web_page(bytes)) return "a web page (HTML)";
  if (begins_with(text, "<?xml") || begins_with(text, "<error")) {
    return "XML, as a storage answers instead of a file";
  }
  if (wanted != Wanted::kWeights) return "";
  if (bytes.empty()) return "an empty file";
  const std::string line = first_line(text);
  return line.empty() ? "" : fmt::format("a text that begins with: {}", line);
}

}  // namespace

bool is_web_page(std::string_view bytes) {
  const std::string_view text = without_mark_and_blanks(bytes);
  return begins_with(text, "<!doctype html") || begins_with(text, "<html") ||
         begins_with(text, "<head");
}

bool is_pickle(std::string_view bytes) {
  const Kind* const kind = kind_of(bytes);
  return kind && kind->weights == kOfTorch && !begins_as_safetensors(bytes);
}

std::string other_kind(std::string_view bytes, const fs::path& file, Wanted wanted) {
  if (std::string other = stand_in(bytes); !other.empty()) return other;
  if (wanted == Wanted::kWeights && begins_as_safetensors(bytes)) return "";
  if (const Kind* const kind = kind_of(bytes)) return text_of(*kind, file, wanted);
  if (wanted == Wanted::kText) return "";
  const std::string_view begin = bytes.substr(0, size_t{1} << 16);
  if (wanted == Wanted::kWeights && without_mark_and_blanks(begin).starts_with('{') &&
      begin.find("\"weight_map\"") != begin.npos) {
    return "expected a file of safetensors, got an index of such files: its name is "
           "model.safetensors.index.json";
  }
  const std::string left = left_by_download(bytes, wanted);
  return left.empty()
             ? ""
             : fmt::format("expected {}, got {}; {}", name_of(wanted), left, fetched(file));
}

}  // namespace fsdp
