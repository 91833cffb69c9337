// What several families read alike from a Hugging Face config.json, or write to it. What is a
// family's own: models/families. The keys themselves: core/io/config_keys.h.
#pragma once

#include <cstdint>
#include <string>

#include "core/io/config_keys.h"
#include "models/config.h"

namespace fsdp::models {

Activation activation_named(const std::string& name);  // Hugging Face's; Error lists them
Activation read_activation(const ConfigKeys& keys, const char* key, const std::string& otherwise);
const char* activation_name(Activation activation);  // Hugging Face's
// hidden / heads, by heads read as `heads_key`. A file's own head_dim where the family has one;
// elsewhere Error for another one than that.
int64_t read_head_dim(const ConfigKeys& keys, const ModelConfig& config, const char* heads_key);
int64_t divided_head_dim(const ConfigKeys& keys, const ModelConfig& config, const char* heads_key);
double norm_epsilon_of(const ConfigKeys& keys, const char* key, double otherwise);  // from 0
// Newer files keep everything in `rope_parameters`, older ones in keys of their own, called as
// here, and `rope_scaling`.
struct RopeKeys {
  const char* theta = "rope_theta";
  const char* fraction = "partial_rotary_factor";
  double default_fraction = 1;
  // In a rope_scaling that has both `type` and `rope_type`, transformers' class copies the first
  // over the second.
  bool type_wins = true;
};
RopeConfig read_rope(const ConfigKeys& keys, const RopeKeys& names = {});
Json rope_scaling_json(const RopeConfig& rope);

}  // namespace fsdp::models
