// Keys of Hugging Face's files that change nothing which this program computes, each with the
// reason. Every other key that transformers and PEFT know is read, or refused by its name
// (tests/models/ignored_keys_test.cpp walks them all). Those of one family: Family::ignored.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"

namespace fsdp::models {

struct IgnoredKey {
  std::string_view key;
  std::string_view reason;
};

std::span<const IgnoredKey> ignored_config_keys();   // of config.json, in every family
std::span<const IgnoredKey> ignored_adapter_keys();  // of adapter_config.json
// The keys of generation_config.json, and of older files' config.json.
std::span<const IgnoredKey> ignored_generation_keys();
// Whether `key` with this value in such a file makes transformers' generate() choose other tokens,
// or another number of them. Here options of the command say how tokens are chosen.
bool chooses_tokens(std::string_view key, const Json& value);

// Keys of the config.json at `path` that are neither read nor on a list: of a newer transformers,
// or of somebody's own. Error as read_config().
std::vector<std::string> unknown_config_keys(const std::string& path);
// The same of a generation_config.json. Error when it is no object.
std::vector<std::string> unknown_generation_keys(const std::string& path);

bool is_ignored(std::span<const IgnoredKey> keys, std::string_view key);

}  // namespace fsdp::models
