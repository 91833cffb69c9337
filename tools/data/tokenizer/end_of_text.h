// Which token of a Hugging Face folder closes a document, and which one fills up rows.
#pragma once

#include <cstdint>
#include <filesystem>

namespace fsdp::data {

class AddedTokens;
class Bpe;

// The id of the end-of-text token, from the files beside the tokenizer.json: eos_token of
// tokenizer_config.json, of special_tokens_map.json, eos_token_id of config.json (the first of
// several); without them the added token with one of the usual names. Names that tokenizer.json
// lacks are passed over. -1: none. An empty folder has no files.
int32_t find_end_of_text(const std::filesystem::path& folder, const AddedTokens& added,
                         const Bpe& model);

// The same of the token that fills up rows, pad_token: only where one of the first two files names
// it.
int32_t find_padding(const std::filesystem::path& folder, const AddedTokens& added,
                     const Bpe& model);

}  // namespace fsdp::data
