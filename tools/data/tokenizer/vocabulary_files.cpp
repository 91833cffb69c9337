// Contract: tools/data/tokenizer/vocabulary_files.h.
//
// [Note: lines of merges.txt]
// GPT-2's class leaves out the first line, whatever it says, and what follows the last line end.
// Qwen2's leaves out a first line that begins with #version:, and blank lines. Both take two
// tokens from each other line, and of equal lines the first.
#include "tools/data/tokenizer/vocabulary_files.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/file_kind.h"
#include "core/io/hub_files.h"
#include "core/io/json.h"
#include "tools/data/tokenizer/class_rules.h"
#include "tools/data/tokenizer/python_json.h"
#include "tools/data/tokenizer/tokenizer_class.h"

namespace fsdp::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMerges = "merges.txt";
constexpr const char* kSentencePieceName = "tokenizer.model";
constexpr const char* kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Json keys_in(const fs::path& file, Json (*read)(const fs::path&)) {
  const Json keys = is_named(file) ? read(file) : Json::object();
  FSDP_CHECK(keys.is_object(), "{}: expected a JSON object", file.string());
  return keys;
}

// A line of Python that makes a tokenizer.json in the folder.
std::string python_line(const fs::path& folder) {
  const std::string name = Json(folder.string()).dump({.replace = true});
  return fmt::format("AutoTokenizer.from_pretrained({}).save_pretrained({})", name, name);
}

// Whether the class is Qwen2's; false: GPT-2's.
bool is_of_qwen(const fs::path& folder, const Json& keys) {
  const ChosenClass chosen = choose_class(folder, keys);
  const bool known = chosen.of && chosen.note.empty();
  const std::string name = known ? std::string(chosen.of->name) : chosen.named;
  // The classes of the table read another file, all but CodeGen's.
  const bool converts = known ? name == "CodeGenTokenizer" : !name.empty();
  const std::string way_out =
      converts || is_named(folder / kSentencePieceName)
          ? fmt::format("in Python, {} writes a tokenizer.json", python_line(folder))
          : "tokenizer_class of tokenizer_config.json must name one of the two";
  FSDP_CHECK(name == "Qwen2Tokenizer" || name == "GPT2Tokenizer",
             "{}: there is no tokenizer.json; vocab.json and {} are read as those of the class "
             "GPT2Tokenizer or Qwen2Tokenizer, got \"{}\"; {}",
             folder.string(), kMerges, name, way_out);
  return name == "Qwen2Tokenizer";
}

// With the ends that Python's text files have. See [Note: lines of merges.txt].
std::vector<std::string> lines_of(const fs::path& file, bool qwen) {
  std::string text = read_file(file);
  const std::string other = other_kind(text, file, Wanted::kText);
  FSDP_CHECK(other.empty(), "{}: {}", file.string(), other);
  std::vector<std::string> lines = {""};
  for (size_t i = 0; i < text.size(); ++i) {
    const bool ends = text[i] == '\n' || text[i] == '\r';
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') ++i;
    if (ends) {
      lines.emplace_back();
    } else {
      lines.back() += text[i];
    }
  }
  if (!qwen || lines[0].starts_with("#version:")) lines[0].clear();
  if (!qwen) lines.back().clear();
  return lines;
}

Json merges_in(const fs::path& file, bool qwen) {
  constexpr const char* kBlanks = " \t\v\f";
  const std::vector<std::string> lines = lines_of(file, qwen);
  const size_t first = qwen ? 0 : 1,
               end = qwen ? lines.size() : std::max(lines.size(), size_t{2}) - 1;
  Json merges = Json::array();
  std::set<std::pair<std::string, std::string>> known;
  for (size_t i = first; i < std::min(end, lines.size()); ++i) {
    std::vector<std::string> words;
    const std::string& line = lines[i];
    for (size_t at = line.find_first_not_of(kBlanks); at != line.npos;) {
      const size_t stop = std::min(line.find_first_of(kBlanks, at), line.size());
      words.push_back(line.substr(at, stop - at));
      at = line.find_first_not_of(kBlanks, stop);
    }
    if (words.empty() && qwen) continue;
    FSDP_CHECK(words.size() == 2, "{}:{}: expected two tokens, got {}", file.string(), i + 1,
               words.size());
    if (!known.emplace(words[0], words[1]).second) continue;
    merges.push_back(Json::array({words[0], words[1]}));
  }
  return merges;
}

Json byte_level(bool prefix, bool regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", prefix},
          {"trim_offsets", true},
          {"use_regex", regex}};
}

// What puts the begin token before a text, by GPT-2's class.
Json begin_of_text(const std::optional<std::string>& begin, const Json& vocabulary,
                   const fs::path& folder) {
  const std::string where = (folder / "tokenizer_config.json").string();
  FSDP_CHECK(begin, "{}: add_bos_token puts bos_token before a text, but that is null", where);
  const std::string& token = *begin;
  const Json* id = vocabulary.find(token);
  FSDP_CHECK(id, "{}: add_bos_token: bos_token \"{}\" is not in vocab.json", where, token);
  const Json special = {{"SpecialToken", {{"id", token}, {"type_id", 0}}}};
  const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const Json ids = {{"id", token}, {"ids", Json::array({*id})}, {"tokens", Json::array({token})}};
  Json tokens = Json::object();
  tokens[token] = ids;
  return {{"type", "TemplateProcessing"},
          {"single", Json::array({special, text})},
          {"pair", Json::array()},
          {"special_tokens", tokens}};
}

// GPT-2's class names this token in every way that it can be named.
Json added_tokens(const Json& vocabulary) {
  constexpr const char* kEnd = "<|endoftext|>";
  Json out = Json::array();
  const Json* id = vocabulary.find(kEnd);
  if (!id) return out;
  out.push_back({{"id", *id},
                 {"content", kEnd},
                 {"single_word", false},
                 {"lstrip", false},
                 {"rstrip", false},
                 {"normalized", false},
                 {"special", true}});
  return out;
}

Json converted(const fs::path& folder) {
  const Json keys = keys_in(folder / "tokenizer_config.json", read_python_json);
  const bool qwen = is_of_qwen(folder, keys);
  const Json vocabulary = keys_in(folder / kVocabularyName, read_json_file);
  Json out = {{"version", "1.0"},
              {"added_tokens", added_tokens(vocabulary)},
              {"normalizer", nullptr},
              {"pre_tokenizer", byte_level(false, true)},
              {"post_processor", byte_level(true, true)},
              {"decoder", byte_level(true, true)},
              {"model",
               {{"type", "BPE"},
                {"unk_token", nullptr},
                {"vocab", vocabulary},
                {"merges", merges_in(folder / kMerges, qwen)}}}};
  if (qwen) {
    const Json split = {{"type", "Split"},
                        {"pattern", {{"Regex", kQwenPattern}}},
                        {"behavior", "Isolated"},
                        {"invert", false}};
    out["normalizer"] = {{"type", "NFC"}};
    out["pre_tokenizer"] = {{"type", "Sequence"},
                            {"pretokenizers", Json::array({split, byte_level(false, false)})}};
  }
  const ClassRules rules = read_class_rules(folder, out);
  if (!qwen && rules.begin_is_asked_for) {
    out["post_processor"] = begin_of_text(rules.begin, vocabulary, folder);
  }
  return out;
}

fs::path folder_with(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

}  // namespace

fs::path tokenizer_file_in(const fs::path& folder) {
  for (const char* name : {"tokenizer.json", kVocabularyName, kSentencePieceName}) {
    if (!is_named(folder / name)) continue;
    if (name != std::string(kVocabularyName) || is_named(folder / kMerges)) return folder / name;
  }
  return {};
}

fs::path folder_of_tokenizer(const fs::path& file) {
  const fs::path folder = folder_with(file);
  return file.filename() == tokenizer_file_in(folder).filename() ? folder : fs::path();
}

std::string tokenizer_text(const fs::path& file) {
  const fs::path folder = folder_with(file);
  FSDP_CHECK(file.filename() != kSentencePieceName,
             "{}: a file of SentencePiece or tiktoken, which is not read; in Python, with "
             "transformers, {} writes the tokenizer.json that is",
             file.string(), python_line(folder));
  return file.filename() == kVocabularyName ? converted(folder).dump() : read_file(file);
}

}  // namespace fsdp::data
