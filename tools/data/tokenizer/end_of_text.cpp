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
std::string end_token(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return "";
  const Json json = read_json_file(file);
  const Json* token = json.find("eos_token");
  if (!token || token->is_null()) return "";
  const Json& content =
      token->is_object() && token->contains("content") ? (*token)["content"] : *token;
  FSDP_CHECK(content.is_string(), "{}: eos_token: expected a string, got {}", file.string(),
             content.type_name());
  return content.get<std::string>();
}

int32_t end_id(const std::filesystem::path& config) {
  if (!std::filesystem::exists(config)) return -1;
  const Json json = read_json_file(config);
  return static_cast<int32_t>(ConfigKeys(json, config.string()).token("eos_token_id"));
}

}  // namespace

int32_t find_end_of_text(const std::filesystem::path& folder, const AddedTokens& added,
                         const Bpe& model) {
  const auto id_of = [&](std::string_view content) {
    const AddedToken* token = added.find(content);
    return token ? token->id : model.id_of(content).value_or(-1);
  };
  const bool files = !folder.empty();
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    if (!files) break;
    const std::string content = end_token(folder / name);
    if (content.empty()) continue;
    // A name that the vocabulary lacks is one that no text has: the next file may know better.
    if (const int32_t id = id_of(content); id >= 0) return id;
  }
  const int32_t configured = files ? end_id(folder / "config.json") : -1;
  if (added.find(configured) || model.content_of(configured)) return configured;
  for (const char* content : {"<|endoftext|>", "</s>", "<|end_of_text|>"}) {
    if (added.find(std::string_view(content))) return id_of(content);
  }
  return -1;
}

}  // namespace fsdp::data
