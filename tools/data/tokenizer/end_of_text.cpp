// Contract: tools/data/tokenizer/end_of_text.h.
#include "tools/data/tokenizer/end_of_text.h"

#include <string>

#include "core/error.h"
#include "core/io/config_keys.h"
#include "core/io/json.h"
#include "tools/data/tokenizer/added_tokens.h"
#include "tools/data/tokenizer/bpe.h"

namespace fsdp::data {
namespace {

// "</s>" or {"content": "</s>", ...}; "" when the file does not say.
std::string token_named(const char* key, const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return "";
  const Json json = read_json_file(file);
  const Json* token = json.find(key);
  if (!token || token->is_null()) return "";
  const Json& content =
      token->is_object() && token->contains("content") ? (*token)["content"] : *token;
  FSDP_CHECK(content.is_string(), "{}: {}: expected a string, got {}", file.string(), key,
             content.type_name());
  return content.get<std::string>();
}

int32_t end_id(const std::filesystem::path& config) {
  if (!std::filesystem::exists(config)) return -1;
  const Json json = read_json_file(config);
  return static_cast<int32_t>(ConfigKeys(json, config.string()).token("eos_token_id"));
}

int32_t id_of(std::string_view content, const AddedTokens& added, const Bpe& model) {
  const AddedToken* token = added.find(content);
  return token ? token->id : model.id_of(content).value_or(-1);
}

// As the files beside a tokenizer.json say; -1: they do not.
int32_t named_by_files(const char* key, const std::filesystem::path& folder,
                       const AddedTokens& added, const Bpe& model) {
  if (folder.empty()) return -1;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string content = token_named(key, folder / name);
    if (content.empty()) continue;
    // A name that the vocabulary lacks is one that no text has: the next file may know better.
    if (const int32_t id = id_of(content, added, model); id >= 0) return id;
  }
  return -1;
}

}  // namespace

int32_t find_padding(const std::filesystem::path& folder, const AddedTokens& added,
                     const Bpe& model) {
  return named_by_files("pad_token", folder, added, model);
}

int32_t find_end_of_text(const std::filesystem::path& folder, const AddedTokens& added,
                         const Bpe& model) {
  if (const int32_t id = named_by_files("eos_token", folder, added, model); id >= 0) return id;
  const int32_t configured = folder.empty() ? -1 : end_id(folder / "config.json");
  if (added.find(configured) || model.content_of(configured)) return configured;
  for (const char* content : {"<|endoftext|>", "</s>", "<|end_of_text|>"}) {
    if (added.find(std::string_view(content))) return id_of(content, added, model);
  }
  return -1;
}

}  // namespace fsdp::data
