// Model configurations small enough to differentiate numerically, with sizes that divide badly.
#pragma once

#include "models/config.h"
#include "models/family.h"

namespace fsdp::test {

inline models::ModelConfig tiny_gpt2(int64_t layers = 2) {
  models::ModelConfig c = models::family_defaults("gpt2");
  c.vocabulary = 23;
  c.hidden = 15;
  c.layers = layers;
  c.heads = c.kv_heads = 5;
  c.head_dim = 3;
  c.ffn = 31;
  c.max_positions = 16;
  c.initializer_range = 0.3;  // so that nothing is close to linear
  models::validate(c);
  return c;
}

// Grouped heads whose width is not hidden / heads, an untied head.
inline models::ModelConfig tiny_llama(int64_t layers = 2) {
  models::ModelConfig c = models::family_defaults("llama");
  c.vocabulary = 29;
  c.hidden = 13;
  c.layers = layers;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 6;
  c.ffn = 17;
  c.max_positions = 16;
  c.initializer_range = 0.3;
  models::validate(c);
  return c;
}

// ALiBi with a head count that is no power of two.
inline models::ModelConfig tiny_bloom(int64_t layers = 2) {
  models::ModelConfig c = models::family_defaults("bloom");
  c.vocabulary = 23;
  c.hidden = 15;
  c.layers = layers;
  c.heads = c.kv_heads = 3;
  c.head_dim = 5;
  c.ffn = 31;
  c.max_positions = 16;
  c.initializer_range = 0.3;
  models::validate(c);
  return c;
}

// Two of seven channels rotated, attention and MLP side by side.
inline models::ModelConfig tiny_neox(int64_t layers = 2) {
  models::ModelConfig c = models::family_defaults("gpt_neox");
  c.vocabulary = 19;
  c.hidden = 21;
  c.layers = layers;
  c.heads = c.kv_heads = 3;
  c.head_dim = 7;
  c.rope.fraction = 0.3;
  c.ffn = 29;
  c.max_positions = 16;
  c.initializer_range = 0.3;
  models::validate(c);
  return c;
}

// Positions from row 2 on, a scaled table.
inline models::ModelConfig tiny_fairseq(int64_t layers = 2) {
  models::ModelConfig c = models::family_defaults("transformer_lm_gpt3");
  c.vocabulary = 23;
  c.hidden = 15;
  c.layers = layers;
  c.heads = c.kv_heads = 5;
  c.head_dim = 3;
  c.ffn = 31;
  c.max_positions = 16;
  c.xavier_init = false;
  c.initializer_range = 0.3;
  models::validate(c);
  return c;
}

// Norms last, no positions, a tied head with a bias.
inline models::ModelConfig tiny_workshop(int64_t layers = 2) {
  models::ModelConfig c = models::family_defaults("workshop_gpt");
  c.vocabulary = 23;
  c.hidden = 15;
  c.layers = layers;
  c.heads = c.kv_heads = 3;
  c.head_dim = 5;
  c.ffn = 31;
  c.max_positions = 16;
  c.initializer_range = 0.3;
  models::validate(c);
  return c;
}

// One of every family that there is.
inline std::vector<models::ModelConfig> tiny_of_every_family(int64_t layers = 2) {
  std::vector<models::ModelConfig> all;
  for (const models::Family* family : models::families()) {
    models::ModelConfig c = models::family_defaults(std::string(family->name));
    c.vocabulary = 23;
    c.hidden = 24;
    c.layers = layers;
    c.heads = c.kv_heads = 3;
    c.head_dim = 8;
    c.ffn = 31;
    c.max_positions = 16;
    c.initializer_range = 0.3;
    models::validate(c);
    all.push_back(c);
  }
  return all;
}

}  // namespace fsdp::test
