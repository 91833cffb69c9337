// Which token of a Hugging Face folder closes a document where no eos_token says it
// (class_rules.h).
#pragma once

#include <cstdint>
#include <filesystem>

namespace fsdp::data {

class AddedTokens;
class Bpe;

// eos_token_id of the config.json in `folder` (the first of several; an empty folder has no files);
// without it the added token with one of the usual names. Ids that the vocabulary lacks are passed
// over. -1: none.
int32_t find_end_of_text(const std::filesystem::path& folder, const AddedTokens& added,
                         const Bpe& model);

}  // namespace fsdp::data
