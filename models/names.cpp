// Tables of Hugging Face names, one per family.
#include "models/names.h"

#include <array>
#include <span>

#include "core/error.h"

namespace fsdp::models {
namespace {

struct NamePair {
  std::string_view ours;      // after "blocks.<i>." for block parameters
  std::string_view theirs;
};

struct NameTable {
  std::string_view prefix;        // "transformer."
  std::string_view block_prefix;  // after `prefix`; followed by "<i>."
  std::span<const NamePair> block;
  std::span<const NamePair> root;
  std::span<const std::string_view> ignorable;  // endings of tensors that are no parameters
};

constexpr std::array kGpt2Block = {NamePair{"attention_norm.", "ln_1."},
                                   NamePair{"attention.qkv.", "attn.c_attn."},
                                   NamePair{"attention.out.", "attn.c_proj."},
                                   NamePair{"mlp_norm.", "ln_2."},
                                   NamePair{"mlp.up.", "mlp.c_fc."},
                                   NamePair{"mlp.down.", "mlp.c_proj."}};
constexpr std::array kGpt2Root = {NamePair{"embedding.tokens.", "transformer.wte."},
                                  NamePair{"embedding.positions.", "transformer.wpe."},
                                  NamePair{"final_norm.", "transformer.ln_f."},
                                  NamePair{"head.", "lm_head."}};
constexpr std::array<std::string_view, 2> kGpt2Ignorable = {".attn.bias", ".attn.masked_bias"};

constexpr std::array kLlamaBlock = {NamePair{"attention_norm.", "input_layernorm."},
                                    NamePair{"attention.q.", "self_attn.q_proj."},
                                    NamePair{"attention.k.", "self_attn.k_proj."},
                                    NamePair{"attention.v.", "self_attn.v_proj."},
                                    NamePair{"attention.out.", "self_attn.o_proj."},
                                    NamePair{"mlp_norm.", "post_attention_layernorm."},
                                    NamePair{"mlp.gate.", "mlp.gate_proj."},
                                    NamePair{"mlp.up.", "mlp.up_proj."},
                                    NamePair{"mlp.down.", "mlp.down_proj."}};
constexpr std::array kLlamaRoot = {NamePair{"embedding.tokens.", "model.embed_tokens."},
                                   NamePair{"final_norm.", "model.norm."},
                                   NamePair{"head.", "lm_head."}};
constexpr std::array<std::string_view, 1> kLlamaIgnorable = {".rotary_emb.inv_freq"};

NameTable table_of(const ModelConfig& config) {
  if (config.family == "gpt2") {
    return {"transformer.", "h.", kGpt2Block, kGpt2Root, kGpt2Ignorable};
  }
  FSDP_CHECK(config.family == "llama", "[names] family: no name table for '{}'", config.family);
  return {"model.", "layers.", kLlamaBlock, kLlamaRoot, kLlamaIgnorable};
}

std::string translate(std::span<const NamePair> pairs, std::string_view name) {
  for (const NamePair& pair : pairs) {
    if (name.starts_with(pair.ours)) {
      return std::string(pair.theirs) + std::string(name.substr(pair.ours.size()));
    }
  }
  fail("[names] {}: no Hugging Face name", name);
}

}  // namespace

std::string hugging_face_name(const ModelConfig& config, std::string_view parameter) {
  const NameTable table = table_of(config);
  constexpr std::string_view kBlocks = "blocks.";
  if (!parameter.starts_with(kBlocks)) return translate(table.root, parameter);
  const size_t dot = parameter.find('.', kBlocks.size());
  const std::string_view index = parameter.substr(kBlocks.size(), dot - kBlocks.size());
  return fmt::format("{}{}{}.{}", table.prefix, table.block_prefix, index,
                     translate(table.block, parameter.substr(dot + 1)));
}

std::string_view base_prefix(const ModelConfig& config) { return table_of(config).prefix; }

bool is_ignorable(const ModelConfig& config, std::string_view file_name) {
  for (const std::string_view ending : table_of(config).ignorable) {
    if (file_name.ends_with(ending)) return true;
  }
  return config.tied_head && file_name == "lm_head.weight";
}

}  // namespace fsdp::models
