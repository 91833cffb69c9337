// The GPT that distributed-training workshops write around torch.nn.TransformerEncoder (KAUST's
// SimpleGPTModel): norms last, ReLU, no positions, no norm before the head, which is tied and has a
// bias. Their config.json holds the names of the model's arguments. Tensors are named as in its
// state_dict. Their single-GPU script is another model: tie_word_embeddings false, and
// shift_labels false, for its loss compares position t with token t instead of t + 1. The presets
// are its weak-scaling runs: layers by GPUs, with BLOOM's vocabulary.
#include "models/family.h"

namespace fsdp::models {
namespace {

ModelConfig defaults() {
  ModelConfig c;
  c.class_prefix = "TransformerEncoder";
  c.model_class = "SimpleGPTModel";
  c.block_class = "TransformerEncoderLayer";
  c.block_order = {BlockPart::kAttention, BlockPart::kMlp, BlockPart::kAttentionNorm,
                   BlockPart::kMlpNorm};
  c.positions = PositionKind::kNone;
  c.activation = Activation::kRelu;
  c.post_norm = true;
  c.final_norm = false;
  c.packed_qkv = c.qkv_bias = c.attention_out_bias = c.mlp_bias = true;
  c.tied_head = c.head_bias = true;
  c.attention_dropout = c.residual_dropout = c.mlp_dropout = 0.1;
  return c;
}

void read(const ConfigKeys& keys, ModelConfig& c) {
  c.vocabulary = keys.get<int64_t>("vocab_size");
  c.hidden = keys.get<int64_t>("hidden_size");
  c.layers = keys.get<int64_t>("num_layers");
  c.heads = c.kv_heads = keys.get<int64_t>("num_heads");
  c.head_dim = divided_head_dim(keys, c, "num_heads");
  c.ffn = keys.get<int64_t>("dim_feedforward");
  c.max_positions = keys.get_or<int64_t>("seq_length", 512);  // nothing bounds them but training
  c.activation = read_activation(keys, "activation", "relu");
  c.norm_epsilon = norm_epsilon_of(keys, "layer_norm_eps", 1e-5);
  c.attention_dropout = c.residual_dropout = c.mlp_dropout = keys.get_or<double>("dropout", 0.1);
  c.shifted_labels = keys.get_or<bool>("shift_labels", true);
  keys.refuse_unless(!keys.get_or<bool>("norm_first", false), "norm_first", "true");
}

Json write(const ModelConfig& c) {
  Json json = {{"vocab_size", c.vocabulary},
               {"hidden_size", c.hidden},
               {"num_layers", c.layers},
               {"num_heads", c.heads},
               {"dim_feedforward", c.ffn},
               {"seq_length", c.max_positions},
               {"activation", activation_name(c.activation)},
               {"layer_norm_eps", c.norm_epsilon},
               {"dropout", c.residual_dropout},
               {"norm_first", false}};
  if (!c.shifted_labels) json["shift_labels"] = false;
  return json;
}

}  // namespace

const Family family::kWorkshopGpt = {
    .name = "workshop_gpt", .defaults = defaults, .read = read, .write = write};

}  // namespace fsdp::models
