// Keys of a tokenizer.json and of a tokenizer_config.json that change no token and no text, each
// with the reason. Every other key that tokenizers and transformers know is read, or refused by its
// name (tests/tools/data/tokenizer/ignored_keys_test.cpp walks them all).
#pragma once

#include <span>
#include <string_view>

namespace fsdp::data {

struct IgnoredKey {
  std::string_view component;  // as check_keys() of json_node.h is told
  std::string_view key;
  std::string_view reason;
};

std::span<const IgnoredKey> ignored_tokenizer_keys();
bool is_ignored(std::string_view component, std::string_view key);

}  // namespace fsdp::data
