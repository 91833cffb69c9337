// Keys of Hugging Face's files that change nothing which this program computes, each with the
// reason: ignored_keys.json; of one family's config.json: "ignored" in families/families.json.
// Every other key that transformers and PEFT know is read, or refused by its name
// (tests/models/ignored_keys_test.cpp walks them all).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"

namespace fsdp::models {

struct Family;

bool is_ignored_in_config(const Family& family, std::string_view key);
bool is_ignored_in_adapter(std::string_view key);
// In generation_config.json, and in older files' config.json.
bool is_ignored_in_generation(std::string_view key);
// Whether `key` with this value in such a file makes transformers' generate() choose other tokens,
// or another number of them. Here options of the command say how tokens are chosen. These keys are
// in the table by the number that chooses nothing.
bool chooses_tokens(std::string_view key, const Json& value);

// Keys of the config.json at `path` that are neither read nor on a list: of a newer transformers,
// or of somebody's own. Error as read_config().
std::vector<std::string> unknown_config_keys(const std::string& path);
// The same of a generation_config.json. Error when it is no object.
std::vector<std::string> unknown_generation_keys(const std::string& path);

}  // namespace fsdp::models
