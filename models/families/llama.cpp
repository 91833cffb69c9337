// Llama and its relatives: rotary positions, RMS norm, SwiGLU, grouped key-value heads. Mistral
// adds a window, Qwen2 biases of q, k and v.
#include <array>

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
  c.mlp = MlpKind::kSwiGlu;
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

// What transformers takes where a file has no such key; null means something else.
struct Absent {
  int64_t max_positions;
  int64_t kv_heads = 0;  // 0: as many as heads
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
  c.vocabulary = keys.get<int64_t>("vocab_size");
  c.hidden = keys.get<int64_t>("hidden_size");
  c.layers = keys.get<int64_t>("num_hidden_layers");
  c.heads = keys.get<int64_t>("num_attention_heads");
  const bool default_kv_heads = absent.kv_heads > 0 && keys.absent("num_key_value_heads");
  c.kv_heads =
      default_kv_heads ? absent.kv_heads : keys.get_or<int64_t>("num_key_value_heads", c.heads);
  c.head_dim = read_head_dim(keys, c, "num_attention_heads");
  c.ffn = keys.get<int64_t>("intermediate_size");
  c.max_positions = keys.get_or<int64_t>("max_position_embeddings", absent.max_positions);
  c.norm_epsilon = norm_epsilon_of(keys, "rms_norm_eps", 1e-6);
  c.attention_dropout = keys.get_or<double>("attention_dropout", 0);
  keys.refuse_unless(keys.get_or<std::string>("hidden_act", "silu") == "silu", "hidden_act",
                     "anything but silu");
  c.rope = read_rope(keys);
  c.padding_row = read_padding_row(keys, c.vocabulary);
  keys.refuse_unless(c.rope.fraction == 1, "partial_rotary_factor", "anything but 1");
}

int64_t read_window(const ConfigKeys& keys) {  // null: none
  return keys.absent("sliding_window") ? 4096 : keys.get_or<int64_t>("sliding_window", 0);
}

// Newer files say for every layer what `sliding_window` says for all of them.
void check_layer_types(const ConfigKeys& keys, const ModelConfig& c) {
  for (const std::string& type : keys.strings("layer_types")) {
    const char* const expected = c.window > 0 ? "sliding_attention" : "full_attention";
    FSDP_CHECK(type == expected, "{}: layer_types: expected {} in every layer, got {}",
               keys.where(), expected, type);
  }
}

void read_llama(const ConfigKeys& keys, ModelConfig& c) {
  read_common(keys, c, {.max_positions = 2048});
  c.qkv_bias = c.attention_out_bias = keys.get_or<bool>("attention_bias", false);
  c.mlp_bias = keys.get_or<bool>("mlp_bias", false);
}

void read_mistral(const ConfigKeys& keys, ModelConfig& c) {
  read_common(keys, c, {.max_positions = 4096 * 32, .kv_heads = 8});
  c.window = read_window(keys);
  check_layer_types(keys, c);
}

void read_qwen2(const ConfigKeys& keys, ModelConfig& c) {
  read_common(keys, c, {.max_positions = 32768, .kv_heads = 32});
  // The layers from max_window_layers on have the window.
  if (keys.get_or<bool>("use_sliding_window", false)) {
    const int64_t first = keys.get_or<int64_t>("max_window_layers", 28);
    if (first < c.layers) {
      keys.refuse_unless(first <= 0, "use_sliding_window", "true in some of the layers");
      c.window = read_window(keys);
    }
  }
  check_layer_types(keys, c);
}

OrderedJson write_common(const ModelConfig& c) {
  return {{"vocab_size", c.vocabulary},
          {"hidden_size", c.hidden},
          {"intermediate_size", c.ffn},
          {"num_hidden_layers", c.layers},
          {"num_attention_heads", c.heads},
          {"num_key_value_heads", c.kv_heads},
          {"head_dim", c.head_dim},
          {"max_position_embeddings", c.max_positions},
          {"hidden_act", "silu"},
          {"rms_norm_eps", c.norm_epsilon},
          {"attention_dropout", c.attention_dropout},
          {"rope_theta", c.rope.theta},
          {"rope_scaling", rope_scaling_json(c.rope)},
          {"pad_token_id", c.padding_row < 0 ? OrderedJson(nullptr) : OrderedJson(c.padding_row)}};
}

OrderedJson write_llama(const ModelConfig& c) {
  OrderedJson json = write_common(c);
  json["attention_bias"] = c.qkv_bias;
  json["mlp_bias"] = c.mlp_bias;
  return json;
}

OrderedJson write_mistral(const ModelConfig& c) {
  OrderedJson json = write_common(c);
  json["sliding_window"] = c.window > 0 ? OrderedJson(c.window) : OrderedJson(nullptr);
  return json;
}

OrderedJson write_qwen2(const ModelConfig& c) {
  OrderedJson json = write_common(c);
  json["use_sliding_window"] = c.window > 0;
  if (c.window > 0) {
    json["sliding_window"] = c.window;
    json["max_window_layers"] = 0;
  }
  return json;
}

// ---------------------------------------------------------------------------- Names, sizes

constexpr std::array kBlock = {NamePair{"attention_norm.", "input_layernorm."},
                               NamePair{"attention.q.", "self_attn.q_proj."},
                               NamePair{"attention.k.", "self_attn.k_proj."},
                               NamePair{"attention.v.", "self_attn.v_proj."},
                               NamePair{"attention.out.", "self_attn.o_proj."},
                               NamePair{"mlp_norm.", "post_attention_layernorm."},
                               NamePair{"mlp.gate.", "mlp.gate_proj."},
                               NamePair{"mlp.up.", "mlp.up_proj."},
                               NamePair{"mlp.down.", "mlp.down_proj."}};
constexpr std::array kRoot = {NamePair{"embedding.tokens.", "model.embed_tokens."},
                              NamePair{"final_norm.", "model.norm."},
                              NamePair{"head.", "lm_head."}};
constexpr std::array<std::string_view, 1> kIgnorable = {".rotary_emb.inv_freq"};
constexpr NameTable kNames = {"model.", "layers.", kBlock, kRoot, kIgnorable};

void llama2(ModelConfig& c) { c.norm_epsilon = 1e-5; }
void code_llama(ModelConfig& c) {
  c.norm_epsilon = 1e-5;
  c.rope.theta = 1e6;
}
void llama3(ModelConfig& c) {
  c.norm_epsilon = 1e-5;
  c.rope.theta = 5e5;
}
void llama31(ModelConfig& c) {
  llama3(c);
  c.rope.scaling = RopeConfig::Scaling::kLlama3;
  c.rope.factor = 8;
}
void llama32(ModelConfig& c) {
  llama31(c);
  c.rope.factor = 32;
  c.tied_head = true;
}
void mistral(ModelConfig& c) {
  c.norm_epsilon = 1e-5;
  c.window = 4096;
}
void qwen(ModelConfig& c) { c.rope.theta = 1e6; }
void qwen_tied(ModelConfig& c) {
  qwen(c);
  c.tied_head = true;
}

constexpr std::array kLlamaPresets = {
    Preset{"tinyllama-1.1b", 32000, 2048, 22, 32, 4, 5632, 2048, llama2},
    Preset{"llama-7b", 32000, 4096, 32, 32, 32, 11008, 2048},
    Preset{"llama-13b", 32000, 5120, 40, 40, 40, 13824, 2048},
    Preset{"llama2-7b", 32000, 4096, 32, 32, 32, 11008, 4096, llama2},
    Preset{"llama2-70b", 32000, 8192, 80, 64, 8, 28672, 4096, llama2},
    Preset{"codellama-7b", 32016, 4096, 32, 32, 32, 11008, 16384, code_llama},
    Preset{"llama3-8b", 128256, 4096, 32, 32, 8, 14336, 8192, llama3},
    Preset{"llama3-70b", 128256, 8192, 80, 64, 8, 28672, 8192, llama3},
    Preset{"llama3.1-8b", 128256, 4096, 32, 32, 8, 14336, 131072, llama31},
    Preset{"llama3.2-1b", 128256, 2048, 16, 32, 8, 8192, 131072, llama32},
    Preset{"llama3.2-3b", 128256, 3072, 28, 24, 8, 8192, 131072, llama32},
};
constexpr std::array kMistralPresets = {
    Preset{"mistral-7b", 32000, 4096, 32, 32, 8, 14336, 32768, mistral},
};
constexpr std::array kQwen2Presets = {
    Preset{"qwen2.5-0.5b", 151936, 896, 24, 14, 2, 4864, 32768, qwen_tied},
    Preset{"qwen2.5-1.5b", 151936, 1536, 28, 12, 2, 8960, 32768, qwen_tied},
    Preset{"qwen2.5-3b", 151936, 2048, 36, 16, 2, 11008, 32768, qwen_tied},
    Preset{"qwen2.5-7b", 152064, 3584, 28, 28, 4, 18944, 32768, qwen},
    Preset{"qwen2.5-14b", 152064, 5120, 48, 40, 8, 13824, 32768, qwen},
    Preset{"qwen2.5-32b", 152064, 5120, 64, 40, 8, 27648, 32768, qwen},
    Preset{"qwen2.5-72b", 152064, 8192, 80, 64, 8, 29568, 32768, qwen},
};

}  // namespace

const Family family::kLlama = {"llama",     llama_defaults, read_llama,
                               write_llama, kNames,         kLlamaPresets};
const Family family::kMistral = {"mistral",     mistral_defaults, read_mistral,
                                 write_mistral, kNames,           kMistralPresets};
const Family family::kQwen2 = {"qwen2",     qwen2_defaults, read_qwen2,
                               write_qwen2, kNames,         kQwen2Presets};

}  // namespace fsdp::models
