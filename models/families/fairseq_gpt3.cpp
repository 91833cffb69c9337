// fairseq's transformer_lm_gpt3_*: pre-norm, learned positions from row 2 on, token rows scaled by
// sqrt(hidden). fairseq has no config.json: this one holds the arguments of its
// TransformerLanguageModel by their names, the model's size in tokens as `vocab_size`. Tensors are
// named as in the "model" of its checkpoints. Sizes without sharing have an output_projection of
// their own: the 13B of its FSDP example, older than the sharing, is transformer_lm_gpt3_13_untied.
// The presets have GPT-2's vocabulary, filled up to a multiple of 16.
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

void as_published(ModelConfig& c) { c.initializer_range = table_deviation(c); }

}  // namespace

const Family family::kFairseqGpt3 = {.name = "transformer_lm_gpt3",
                                     .defaults = defaults,
                                     .read = read,
                                     .write = write,
                                     .complete = as_published};

}  // namespace fsdp::models
