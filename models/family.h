// What one model family is: conventions, config.json, names in files, sizes. A new family: a file
// in models/families that defines one of these, its declaration below, a line in family.cpp, and
// its names and sizes in families/families.json.
#pragma once

#include <span>

#include "core/io/json.h"
#include "models/config.h"
#include "models/family_keys.h"

namespace fsdp::models {

struct Family {
  std::string_view name;  // Hugging Face's model_type
  ModelConfig (*defaults)();
  void (*read)(const ConfigKeys& keys, ModelConfig& config);  // its own keys, over the defaults
  Json (*write)(const ModelConfig& config);
  void (*complete)(ModelConfig& config) = nullptr;  // what follows from a preset's sizes
};

// The family's part of families/families.json, in which a key may be missing:
//   prefix, block_prefix   "transformer.", which files may lack, and behind it "h.", then "<i>."
//   block, root            beginnings of parameter names, ours (of a block: behind "blocks.<i>.")
//                          and Hugging Face's
//   names_of               another family, which has the same names
//   ignorable              endings of tensors that are no parameters
//   ignored                keys of its config.json that change nothing here, by the reason
//   absent_bos, absent_eos token ids that transformers takes where a config.json has no such key
//   presets                published sizes, to train from scratch: dropout is the family's own here
//                          (none for GPT-2, whose published file says 0.1), the run's tokenizer
//                          gives begin and end of a text, head_dim is hidden / heads.
//     sizes                vocabulary, hidden, layers, heads, kv_heads, ffn, max_positions
//     hub                  names on Hugging Face's hub, those of tuned models of this size too
//     norm_epsilon, rope_theta, llama3_factor, window, tied_head, activation
//                          where they are not the family's
const Json& data_of(const Family& family);
// Where the names of its parameters stand, with all keys.
const Json& names_of(const Family& family);

std::span<const Family* const> families();
const Family& family_of(std::string_view name);  // Error lists the known names

namespace family {
extern const Family kBloom, kFairseqGpt3, kGpt2, kGptNeox, kLlama, kMistral, kQwen2, kWorkshopGpt;
}

}  // namespace fsdp::models
