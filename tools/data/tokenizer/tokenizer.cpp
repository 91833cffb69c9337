// The byte tokenizer, and which tokenizer a name means. Contract: tools/data/tokenizer/tokenizer.h.
#include "tools/data/tokenizer/tokenizer.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/hub_files.h"
#include "core/io/json.h"
#include "core/io/patience.h"
#include "core/rng.h"
#include "tools/data/tokenizer/byte_tokenizer_file.h"
#include "tools/data/tokenizer/hugging_face.h"
#include "tools/data/tokenizer/python_json.h"
#include "tools/data/tokenizer/tokenizer_class.h"
#include "tools/data/tokenizer/vocabulary_files.h"

namespace fsdp::data {
namespace {

namespace fs = std::filesystem;

fs::path tokenizer_file(const std::string& name) {
  fs::path file(name);
  if (is_folder(file)) file = tokenizer_file_in(snapshot_in(file));
  if (is_named(file)) return file;
  fail_missing(
      fmt::format("tokenizer: expected bytes or the path of a tokenizer.json, got \"{}\"{}", name,
                  how_to_fetch(name)));
}

template <typename Belongs>
Span tokens_where(std::span<const Span> bytes, const Belongs& belongs) {
  const auto first = std::find_if(bytes.begin(), bytes.end(), belongs);
  const auto behind = std::find_if(bytes.rbegin(), bytes.rend(), belongs).base();
  if (first == bytes.end()) return {};
  return {static_cast<size_t>(first - bytes.begin()), static_cast<size_t>(behind - bytes.begin())};
}

}  // namespace

Span tokens_that_cover(std::span<const Span> bytes, Span part) {
  return tokens_where(bytes, [=](Span token) {
    return std::max(token.begin, part.begin) < std::min(token.end, part.end);
  });
}

Span tokens_that_begin_in(std::span<const Span> bytes, Span part) {
  return tokens_where(
      bytes, [=](Span token) { return part.begin <= token.begin && token.begin < part.end; });
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  std::vector<int32_t> out;
  encode_to(text, special,
            [&](std::span<const int32_t> ids) { out.insert(out.end(), ids.begin(), ids.end()); });
  return out;
}

std::string note_on_unknown_ids(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  constexpr size_t kShown = 8;
  std::set<int32_t> unknown;
  for (const int32_t id : ids) {
    if (!tokenizer.has(id)) unknown.insert(id);
  }
  if (unknown.empty()) return "";
  std::vector<int32_t> shown(unknown.begin(), unknown.end());
  shown.resize(std::min(shown.size(), kShown));
  const size_t more = unknown.size() - shown.size();
  return fmt::format("{}: it has no token {}{}: left out of the text", tokenizer.name(),
                     fmt::join(shown, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

uint64_t ByteTokenizer::identity() const { return hash_name("bytes, end of text 256"); }

void ByteTokenizer::encode_to(std::string_view text, SpecialTokens, const UseIds& use) const {
  constexpr size_t kStretch = 1 << 20;
  std::vector<int32_t> ids;
  for (size_t begin = 0; begin < text.size(); begin += kStretch) {
    ids.clear();
    for (const char c : text.substr(begin, kStretch)) ids.push_back(static_cast<uint8_t>(c));
    use(ids);
  }
}

EncodedText ByteTokenizer::encode_with_bytes(std::string_view text, SpecialTokens special,
                                             std::span<const size_t>) const {
  EncodedText out{.ids = encode(text, special), .bytes = {}};
  for (size_t i = 0; i < text.size(); ++i) out.bytes.push_back({i, i + 1});
  return out;
}

std::string ByteTokenizer::decode(std::span<const int32_t> tokens, SpecialTokens) const {
  std::string out;
  for (const int32_t token : tokens) {
    FSDP_CHECK(token >= 0 && token < vocab_size(), "token {}: the tokenizer {} has the ids 0 to {}",
               token, name(), vocab_size() - 1);
    if (token != end_of_text()) out += static_cast<char>(token);
  }
  return out;
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name) {
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  const fs::path file = tokenizer_file(name);
  if (is_byte_tokenizer(file)) return std::make_unique<ByteTokenizer>();
  return std::make_unique<HuggingFaceTokenizer>(file);
}

std::string default_tokenizer(const std::string& model_folder) {
  const fs::path file = model_folder.empty() ? fs::path() : tokenizer_file_in(model_folder);
  return file.empty() || is_byte_tokenizer(file) ? "bytes" : file.string();
}

namespace {

// The text of the token that ends a text, where it is a special one that no key names; else "".
std::string end_to_name(const Tokenizer& tokenizer) {
  const NamedTokens named = tokenizer.named();
  if (named.end_is_said || !named.end || *named.end < 0) return "";
  const std::span<const int32_t> end{&*named.end, 1};
  if (!tokenizer.decode(end, SpecialTokens::kOmit).empty()) return "";
  return tokenizer.decode(end, SpecialTokens::kInclude);
}

// A copy means the same tokenizer whatever model it lies beside: its tokenizer_config.json names
// the class and the token that ends a text, where that of `file` does not.
void complete_config(const fs::path& file, const Tokenizer& tokenizer,
                     const fs::path& model_folder) {
  const fs::path folder = folder_of_tokenizer(file), config_file = folder / "tokenizer_config.json";
  Json config;
  if (!folder.empty() && is_named(config_file)) config = read_python_json(config_file);
  const std::string end = end_to_name(tokenizer);
  const bool has_class = config.is_object() && !config.value("tokenizer_class", Json()).is_null();
  if (has_class && end.empty()) return;
  const TokenizerClass* of = folder.empty() ? nullptr : choose_class(folder, config).of;
  if (config.is_null()) config = Json::object();
  if (!of) {  // the tokenizer.json alone
    of = &tokenizer_classes().front();
    const Json json = read_json_file(file);
    const Json* prefix = json.follow("/pre_tokenizer/add_prefix_space");
    if (prefix && prefix->is_boolean()) config["add_prefix_space"] = *prefix;
  }
  if (!has_class) config["tokenizer_class"] = std::string(of->name) + "Fast";
  if (!end.empty()) config["eos_token"] = end;
  write_json_file(model_folder / "tokenizer_config.json", config);
  const fs::path map = model_folder / "special_tokens_map.json";
  if (end.empty() || !is_named(map)) return;
  Json special = read_python_json(map);
  special["eos_token"] = end;
  write_json_file(map, special);
}

}  // namespace

void copy_tokenizer_files(const std::string& name, const Tokenizer& tokenizer,
                          const fs::path& model_folder) {
  if (name == "bytes") return write_byte_tokenizer(model_folder);
  const fs::path file = tokenizer_file(name);
  write_file_atomically(model_folder / "tokenizer.json", tokenizer_text(file));
  const fs::path folder = folder_of_tokenizer(file);
  if (!folder.empty()) copy_tokenizer_folder(folder, model_folder);
  complete_config(file, tokenizer, model_folder);
}

void copy_tokenizer_folder(const fs::path& from, const fs::path& to) {
  const auto copy = [&](const char* name) {
    write_file_atomically(to / name, read_file(from / name));
  };
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"})
    if (is_named(from / name)) copy(name);
  // Not read where there is a tokenizer.json: no run that is over fails for a broken link to one.
  for (const char* name : {"vocab.json", "merges.txt", "tokenizer.model"})
    if (fs::exists(from / name)) copy(name);
  copy_chat_templates(from, to);
}

bool copy_chat_templates(const fs::path& from, const fs::path& to) {
  const fs::path more = "additional_chat_templates";
  std::vector<fs::path> found;
  std::error_code unreadable;
  for (const char* name : {"chat_template.jinja", "chat_template.json"}) {
    if (fs::exists(from / name, unreadable)) found.emplace_back(name);
  }
  for (const auto& item : fs::directory_iterator(from / more, unreadable)) {
    if (item.path().extension() != ".jinja" || !item.is_regular_file(unreadable)) continue;
    fs::create_directories(to / more);
    found.push_back(more / item.path().filename());
  }
  for (const fs::path& name : found) write_file_atomically(to / name, read_file(from / name));
  return !found.empty();
}

}  // namespace fsdp::data
