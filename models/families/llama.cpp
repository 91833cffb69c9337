// Llama and its relatives: rotary positions, RMS norm, a gated MLP, grouped key-value heads.
// Mistral adds a window, Qwen2 biases of q, k and v.
#include "models/family.h"

namespace fsdp::models {
namespace {

ModelConfig with_classes(const std::string& prefix) {
  ModelConfig c;
  c.class_prefix = prefix;
  c.model_class = prefix + "ForCausalLM";
  c.block_class = prefix + "DecoderLayer";
  c.block_order = {BlockPart::kAttention, BlockPart::kMlp, BlockPart::kAttentionNorm,
                   BlockPart::kMlpNorm};
  c.positions = PositionKind::kRope;
  c.norm = NormKind::kRmsNorm;
  c.mlp = MlpKind::kGated;
  c.activation = Activation::kSilu;
  c.norm_epsilon = 1e-6;
  return c;
}

ModelConfig llama_defaults() { return with_classes("Llama"); }
ModelConfig mistral_defaults() { return with_classes("Mistral"); }
ModelConfig qwen2_defaults() {
  ModelConfig c = with_classes("Qwen2");
  c.qkv_bias = true;
  return c;
}

// ---------------------------------------------------------------------------- config.json

// What transformers takes where a file has no such key.
struct Absent {
  int64_t vocabulary = 32000;
  int64_t ffn;
  int64_t max_positions;
  int64_t kv_heads = 0;  // 0: as many as heads, which null says everywhere
  bool rope_type_wins = false;
};

// nn.Embedding's padding_idx: a negative one counts from the end.
int64_t read_padding_row(const ConfigKeys& keys, int64_t vocabulary) {
  if (!keys.has("pad_token_id")) return -1;
  const int64_t id = keys.get<int64_t>("pad_token_id");
  FSDP_CHECK(id >= -vocabulary && id < vocabulary,
             "{}: pad_token_id: expected within [-{}, {}), the vocabulary, got {}", keys.where(),
             vocabulary, vocabulary, id);
  return id < 0 ? id + vocabulary : id;
}

void read_common(const ConfigKeys& keys, ModelConfig& c, const Absent& absent) {
  c.vocabulary = keys.extent("vocab_size", absent.vocabulary);
  c.hidden = keys.extent("hidden_size", 4096);
  c.layers = keys.extent("num_hidden_layers", 32);
  c.heads = keys.extent("num_attention_heads", 32);
  const bool default_kv_heads = absent.kv_heads > 0 && keys.absent("num_key_value_heads");
  c.kv_heads =
      default_kv_heads ? absent.kv_heads : keys.get_or<int64_t>("num_key_value_heads", c.heads);
  c.head_dim = read_head_dim(keys, c, "num_attention_heads");
  c.ffn = keys.extent("intermediate_size", absent.ffn);
  c.max_positions = keys.extent("max_position_embeddings", absent.max_positions);
  c.norm_epsilon = norm_epsilon_of(keys, "rms_norm_eps", 1e-6);
  c.attention_dropout = keys.get_or<double>("attention_dropout", 0);
  c.activation = read_activation(keys, "hidden_act", "silu");
  c.rope = read_rope(keys, {.type_wins = !absent.rope_type_wins});
  c.padding_row = read_padding_row(keys, c.vocabulary);
  keys.refuse_unless(c.rope.fraction == 1, "partial_rotary_factor", "anything but 1");
}

int64_t read_window(const ConfigKeys& keys) {  // 0, null in the file: none
  if (keys.absent("sliding_window")) return 4096;
  if (!keys.has("sliding_window")) return 0;
  const int64_t window = keys.get<int64_t>("sliding_window");
  FSDP_CHECK(window > 0,
             "{}: sliding_window: expected at least 1, or null for no window, got {}: a query "
             "would see no key",
             keys.where(), window);
  return window;
}

// The type that all layers have; "" where the file does not say.
std::string read_layer_type(const ConfigKeys& keys, const ModelConfig& c) {
  const std::vector<std::string> types = keys.strings("layer_types");
  if (!keys.has("layer_types")) return "";
  FSDP_CHECK(static_cast<int64_t>(types.size()) == c.layers,
             "{}: layer_types: expected one type for each of {} layers, got {}", keys.where(),
             c.layers, types.size());
  for (const std::string& type : types) {
    FSDP_CHECK(type == "full_attention" || type == "sliding_attention",
               "{}: layer_types: expected full_attention or sliding_attention, got {}",
               keys.where(), type);
    FSDP_CHECK(type == types.front(), "{}: layer_types: expected {} in every layer, got {}",
               keys.where(), types.front(), type);
  }
  return types.front();
}

void read_llama(const ConfigKeys& keys, ModelConfig& c) {
  read_common(keys, c, {.ffn = 11008, .max_positions = 2048});
  c.qkv_bias = c.attention_out_bias = keys.get_or<bool>("attention_bias", false);
  c.mlp_bias = keys.get_or<bool>("mlp_bias", false);
}

void read_mistral(const ConfigKeys& keys, ModelConfig& c) {
  read_common(keys, c,
              {.ffn = 14336, .max_positions = 4096 * 32, .kv_heads = 8, .rope_type_wins = true});
  c.window = read_window(keys);
  // Its window alone decides: a file whose layer types say something else contradicts itself.
  const std::string expected = c.window > 0 ? "sliding_attention" : "full_attention";
  const std::string type = read_layer_type(keys, c);
  FSDP_CHECK(type.empty() || type == expected,
             "{}: layer_types: expected {} in every layer, as sliding_window says, got {}",
             keys.where(), expected, type);
}

// sliding_window: null.
bool has_no_window(const ConfigKeys& keys) {
  return !keys.has("sliding_window") && !keys.absent("sliding_window");
}

// Where there are no layer types, the layers from max_window_layers on have the window, if there is
// one.
bool has_window(const ConfigKeys& keys, const ModelConfig& c) {
  // Every key is asked for, also where it decides nothing: an unasked key counts as unknown.
  const bool in_use = keys.get_or<bool>("use_sliding_window", false);
  const bool no_window = has_no_window(keys);
  const int64_t first = keys.get_or<int64_t>("max_window_layers", 28);
  const std::string type = read_layer_type(keys, c);
  keys.refuse_unless(in_use || type != "sliding_attention", "layer_types",
                     "sliding_attention without use_sliding_window");
  if (!type.empty() || !in_use || no_window) return type == "sliding_attention";
  keys.refuse_unless(first <= 0 || first >= c.layers, "use_sliding_window",
                     "true in some of the layers");
  return first <= 0;
}

void read_qwen2(const ConfigKeys& keys, ModelConfig& c) {
  read_common(keys, c,
              {.vocabulary = 151936, .ffn = 22016, .max_positions = 32768, .kv_heads = 32});
  if (!has_window(keys, c)) return;
  keys.refuse_unless(!has_no_window(keys) || !keys.has("layer_types"), "layer_types",
                     "sliding_attention without a sliding_window");
  c.window = read_window(keys);
}

Json write_common(const ModelConfig& c) {
  return {{"vocab_size", c.vocabulary},
          {"hidden_size", c.hidden},
          {"intermediate_size", c.ffn},
          {"num_hidden_layers", c.layers},
          {"num_attention_heads", c.heads},
          {"num_key_value_heads", c.kv_heads},
          {"head_dim", c.head_dim},
          {"max_position_embeddings", c.max_positions},
          {"hidden_act", activation_name(c.activation)},
          {"rms_norm_eps", c.norm_epsilon},
          {"attention_dropout", c.attention_dropout},
          {"rope_theta", c.rope.theta},
          {"rope_scaling", rope_scaling_json(c.rope)},
          {"pad_token_id", c.padding_row < 0 ? Json(nullptr) : Json(c.padding_row)}};
}

Json write_llama(const ModelConfig& c) {
  Json json = write_common(c);
  json["attention_bias"] = c.qkv_bias;
  json["mlp_bias"] = c.mlp_bias;
  return json;
}

Json write_mistral(const ModelConfig& c) {
  Json json = write_common(c);
  json["sliding_window"] = c.window > 0 ? Json(c.window) : Json(nullptr);
  return json;
}

Json write_qwen2(const ModelConfig& c) {
  Json json = write_common(c);
  json["use_sliding_window"] = c.window > 0;
  if (c.window > 0) {
    json["sliding_window"] = c.window;
    json["max_window_layers"] = 0;
  }
  return json;
}

}  // namespace

const Family family::kLlama = {
    .name = "llama", .defaults = llama_defaults, .read = read_llama, .write = write_llama};
const Family family::kMistral = {
    .name = "mistral", .defaults = mistral_defaults, .read = read_mistral, .write = write_mistral};
const Family family::kQwen2 = {
    .name = "qwen2", .defaults = qwen2_defaults, .read = read_qwen2, .write = write_qwen2};

}  // namespace fsdp::models
