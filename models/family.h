// What one model family is: conventions, config.json, names in files, sizes. A new family: a file
// in models/families that defines one of these, its declaration below and a line in family.cpp.
#pragma once

#include <span>

#include "core/io/json.h"
#include "models/config.h"
#include "models/family_keys.h"
#include "models/ignored_keys.h"

namespace fsdp::models {

// Beginnings of parameter names, ours and Hugging Face's.
struct NamePair {
  std::string_view ours;  // after "blocks.<i>." for block parameters
  std::string_view theirs;
};

struct NameTable {
  std::string_view prefix;        // "transformer.": files may lack it
  std::string_view block_prefix;  // after `prefix`; followed by "<i>."
  std::span<const NamePair> block;
  std::span<const NamePair> root;
  std::span<const std::string_view> ignorable;  // endings of tensors that are no parameters
};

// A published size, to train from scratch: dropout is the family's own here (none for GPT-2, whose
// published file says 0.1), the run's tokenizer gives begin and end of a text. head_dim is
// hidden / heads unless `more` says otherwise.
struct Preset {
  std::string_view name;
  int64_t vocabulary, hidden, layers, heads, kv_heads, ffn, max_positions;
  void (*more)(ModelConfig&) = nullptr;
};

struct Family {
  std::string_view name;  // Hugging Face's model_type
  ModelConfig (*defaults)();
  void (*read)(const ConfigKeys& keys, ModelConfig& config);  // its own keys, over the defaults
  Json (*write)(const ModelConfig& config);
  NameTable names;
  std::span<const Preset> presets;
  std::span<const IgnoredKey> ignored = {};  // of its config.json, besides ignored_config_keys()
  // Token ids that transformers takes where a config.json has no such key; -1: none.
  int64_t absent_bos = -1, absent_eos = -1;
};

std::span<const Family* const> families();
const Family& family_of(std::string_view name);  // Error lists the known names

namespace family {
extern const Family kBloom, kFairseqGpt3, kGpt2, kGptNeox, kLlama, kMistral, kQwen2, kWorkshopGpt;
}

}  // namespace fsdp::models
