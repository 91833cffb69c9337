// Which file of a folder says its tokenizer, and the tokenizer of folders that have vocab.json and
// merges.txt in place of a tokenizer.json. Not here: what a tokenizer.json means (hugging_face.h).
#pragma once

#include <filesystem>
#include <string>

namespace fsdp::data {

inline constexpr const char* kVocabularyName = "vocab.json";

// tokenizer.json, or vocab.json beside merges.txt, or tokenizer.model, which is not read; empty:
// the folder has none of them.
std::filesystem::path tokenizer_file_in(const std::filesystem::path& folder);
// The folder with `file`, whose other files belong to it; empty: the folder's tokenizer is another
// file, and what lies beside `file` may belong to that one.
std::filesystem::path folder_of_tokenizer(const std::filesystem::path& file);

// The text of a tokenizer.json: of the file itself or, of a vocab.json, as the converter of
// transformers 4.57 makes it for GPT-2's and Qwen2's class. The class is tokenizer_class of the
// tokenizer_config.json or config.json beside it, or that of the model_type. Error for others.
std::string tokenizer_text(const std::filesystem::path& file);

}  // namespace fsdp::data
