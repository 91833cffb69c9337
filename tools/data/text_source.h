// Files of text as a sequence of documents: a plain file is one document, a JSONL file one a row.
// Errors name file and line. A further format (columns, several fields): a TextFormat here and its
// reader in text_source.cpp. Not here: tokens (tokenizer.h, token_cache.h).
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace fsdp::data {

enum class TextFormat : uint8_t { kAuto, kText, kJsonl };
inline constexpr std::array kTextFormats = {TextFormat::kAuto, TextFormat::kText,
                                            TextFormat::kJsonl};
std::string_view name_of(TextFormat format);

// kAuto: kJsonl for names that end with .jsonl or .json, kText for others.
TextFormat format_of(const std::filesystem::path& file, TextFormat format);

struct TextOptions {
  TextFormat format = TextFormat::kAuto;
  std::string field = "text";  // of a JSONL row
};

// Calls `use` with every document of the file in order. Error for a missing or empty file, invalid
// UTF-8 (file:line and byte), a malformed JSONL row, a row without the field, a field that is not
// text, a JSONL file without rows. A byte order mark and blank lines between rows are skipped.
void for_each_document(const std::filesystem::path& file, const TextOptions& options,
                       const std::function<void(std::string_view document)>& use);

}  // namespace fsdp::data
