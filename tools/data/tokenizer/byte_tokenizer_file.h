// The byte tokenizer as files that transformers reads: a BPE without merges, whose vocabulary is
// the bytes and the end of a text. Not here: what it does here (tokenizer.h).
#pragma once

#include <filesystem>

namespace fsdp::data {

// tokenizer.json and tokenizer_config.json.
void write_byte_tokenizer(const std::filesystem::path& folder);
// Whether a tokenizer.json is that of write_byte_tokenizer(), also where transformers has written
// it again.
bool is_byte_tokenizer(const std::filesystem::path& tokenizer_json);

}  // namespace fsdp::data
