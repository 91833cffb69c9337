// fairseq's transformer_lm_gpt3_*: pre-norm, learned positions from row 2 on, token rows scaled by
// sqrt(hidden). fairseq has no config.json: this one holds the arguments of its
// TransformerLanguageModel by their names, the model's size in tokens as `vocab_size`. Tensors are
// named as in the "model" of its checkpoints. Sizes without sharing have an output_projection of
// their own: the 13B of its FSDP example, older than the sharing, is transformer_lm_gpt3_13_untied.
#include <array>
#include <cmath>

#include "models/family.h"

namespace fsdp::models {
namespace {

// Its dictionary numbers the padding token 1, and positions count on from there.
constexpr int64_t kPaddingIndex = 1;

ModelConfig defaults() {
  ModelConfig c;
  c.class_prefix = "Transformer";
  c.model_class = "TransformerLanguageModel";
  c.block_class = "TransformerDecoderLayer";
  c.block_order = {BlockPart::kAttention, BlockPart::kAttentionNorm, BlockPart::kMlp,
                   BlockPart::kMlpNorm};
  c.padding_row = kPaddingIndex;
  c.position_offset = kPaddingIndex + 1;
  c.scaled_embedding = true;
  c.activation = Activation::kGeluErf;
  c.qkv_bias = c.attention_out_bias = c.mlp_bias = true;
  c.tied_head = true;
  c.xavier_init = true;
  return c;
}

double table_deviation(const ModelConfig& c) {
  return 1 / std::sqrt(static_cast<double>(c.hidden));
}

void read(const ConfigKeys& keys, ModelConfig& c) {
  c.vocabulary = keys.get<int64_t>("vocab_size");
  c.hidden = keys.get<int64_t>("decoder_embed_dim");
  c.layers = keys.get<int64_t>("decoder_layers");
  c.heads = c.kv_heads = keys.get<int64_t>("decoder_attention_heads");
  c.head_dim = divided_head_dim(keys, c, "decoder_attention_heads");
  c.ffn = keys.get_or<int64_t>("decoder_ffn_embed_dim", 4 * c.hidden);
  c.max_positions = keys.get<int64_t>("tokens_per_sample");
  c.tied_head = keys.get_or<bool>("share_decoder_input_output_embed", c.tied_head);
  c.scaled_embedding = !keys.get_or<bool>("no_scale_embedding", false);
  c.activation = read_activation(keys, "activation_fn", "gelu");
  c.embedding_dropout = c.residual_dropout = keys.get_or<double>("dropout", 0);
  c.attention_dropout = keys.get_or<double>("attention_dropout", 0);
  c.mlp_dropout = keys.get_or<double>("activation_dropout", 0);
  c.initializer_range = keys.get_or<double>("initializer_range", table_deviation(c));
  keys.refuse_unless(keys.get_or<bool>("decoder_learned_pos", true), "decoder_learned_pos",
                     "false (sinusoidal positions)");
  keys.refuse_unless(keys.get_or<bool>("decoder_normalize_before", true),
                     "decoder_normalize_before", "false");
  keys.refuse_unless(!keys.get_or<bool>("no_decoder_final_norm", false), "no_decoder_final_norm",
                     "true");
}

Json write(const ModelConfig& c) {
  return {{"vocab_size", c.vocabulary},
          {"decoder_embed_dim", c.hidden},
          {"decoder_layers", c.layers},
          {"decoder_attention_heads", c.heads},
          {"decoder_ffn_embed_dim", c.ffn},
          {"tokens_per_sample", c.max_positions},
          {"share_decoder_input_output_embed", c.tied_head},
          {"no_scale_embedding", !c.scaled_embedding},
          {"activation_fn", activation_name(c.activation)},
          {"dropout", c.residual_dropout},
          {"attention_dropout", c.attention_dropout},
          {"activation_dropout", c.mlp_dropout},
          {"decoder_learned_pos", true},
          {"decoder_normalize_before", true},
          {"no_decoder_final_norm", false}};
}

constexpr std::array kBlock = {NamePair{"attention_norm.", "self_attn_layer_norm."},
                               NamePair{"attention.q.", "self_attn.q_proj."},
                               NamePair{"attention.k.", "self_attn.k_proj."},
                               NamePair{"attention.v.", "self_attn.v_proj."},
                               NamePair{"attention.out.", "self_attn.out_proj."},
                               NamePair{"mlp_norm.", "final_layer_norm."},
                               NamePair{"mlp.up.", "fc1."},
                               NamePair{"mlp.down.", "fc2."}};
constexpr std::array kRootNames = {NamePair{"embedding.tokens.", "decoder.embed_tokens."},
                                   NamePair{"embedding.positions.", "decoder.embed_positions."},
                                   NamePair{"final_norm.", "decoder.layer_norm."},
                                   NamePair{"head.", "decoder.output_projection."}};
constexpr std::array<std::string_view, 1> kIgnorable = {"decoder.version"};

void as_published(ModelConfig& c) { c.initializer_range = table_deviation(c); }
void untied(ModelConfig& c) {
  as_published(c);
  c.tied_head = false;
}

constexpr int64_t kWords = 50272;  // GPT-2's, filled up to a multiple of 16
constexpr std::array kPresets = {
    Preset{"transformer_lm_gpt3_small", kWords, 768, 12, 12, 12, 3072, 2048, as_published},
    Preset{"transformer_lm_gpt3_medium", kWords, 1024, 24, 16, 16, 4096, 2048, as_published},
    Preset{"transformer_lm_gpt3_large", kWords, 1536, 24, 16, 16, 6144, 2048, as_published},
    Preset{"transformer_lm_gpt3_xl", kWords, 2048, 24, 32, 32, 8192, 2048, as_published},
    Preset{"transformer_lm_gpt3_2_7", kWords, 2560, 32, 32, 32, 10240, 2048, as_published},
    Preset{"transformer_lm_gpt3_6_7", kWords, 4096, 32, 32, 32, 16384, 2048, as_published},
    Preset{"transformer_lm_gpt3_13", kWords, 5120, 40, 40, 40, 20480, 2048, as_published},
    Preset{"transformer_lm_gpt3_175", kWords, 12288, 96, 96, 96, 49152, 2048, as_published},
    Preset{"transformer_lm_gpt3_small_untied", kWords, 768, 12, 12, 12, 3072, 2048, untied},
    Preset{"transformer_lm_gpt3_medium_untied", kWords, 1024, 24, 16, 16, 4096, 2048, untied},
    Preset{"transformer_lm_gpt3_large_untied", kWords, 1536, 24, 16, 16, 6144, 2048, untied},
    Preset{"transformer_lm_gpt3_xl_untied", kWords, 2048, 24, 32, 32, 8192, 2048, untied},
    Preset{"transformer_lm_gpt3_2_7_untied", kWords, 2560, 32, 32, 32, 10240, 2048, untied},
    Preset{"transformer_lm_gpt3_6_7_untied", kWords, 4096, 32, 32, 32, 16384, 2048, untied},
    Preset{"transformer_lm_gpt3_13_untied", kWords, 5120, 40, 40, 40, 20480, 2048, untied},
    Preset{"transformer_lm_gpt3_175_untied", kWords, 12288, 96, 96, 96, 49152, 2048, untied},
};

}  // namespace

const Family family::kFairseqGpt3 = {
    .name = "transformer_lm_gpt3",
    .defaults = defaults,
    .read = read,
    .write = write,
    .names = {"decoder.", "layers.", kBlock, kRootNames, kIgnorable},
    .presets = kPresets};

}  // namespace fsdp::models
