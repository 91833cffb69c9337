// Contract: tools/data/tokenizer/end_of_text.h.
#include "tools/data/tokenizer/end_of_text.h"

#include "core/io/config_keys.h"
#include "core/io/hub_files.h"
#include "core/io/json.h"
#include "tools/data/tokenizer/added_tokens.h"
#include "tools/data/tokenizer/bpe.h"

namespace fsdp::data {
namespace {

int32_t end_id(const std::filesystem::path& config) {
  if (!is_named(config)) return -1;
  const Json json = read_json_file(config);
  return static_cast<int32_t>(ConfigKeys(json, config.string()).token("eos_token_id"));
}

}  // namespace

int32_t find_end_of_text(const std::filesystem::path& folder, const AddedTokens& added,
                         const Bpe& model) {
  const int32_t configured = folder.empty() ? -1 : end_id(folder / "config.json");
  if (added.find(configured) || model.content_of(configured)) return configured;
  for (const char* content : {"<|endoftext|>", "</s>", "<|end_of_text|>"}) {
    if (const AddedToken* token = added.find(std::string_view(content))) return token->id;
  }
  return -1;
}

}  // namespace fsdp::data
