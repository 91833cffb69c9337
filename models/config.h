// What distinguishes the model families, as data: one block composition (models/block.h) is built
// from it. Read from a Hugging Face config.json or filled in for a model from scratch.
// A new family: one file in models/families (family.h).
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "core/layer_values.h"
#include "core/ops/linear.h"

namespace fsdp::models {

enum class PositionKind : uint8_t { kNone, kLearned, kRope, kAlibi };
enum class NormKind : uint8_t { kLayerNorm, kRmsNorm };
enum class MlpKind : uint8_t { kActivation, kGated };

// What a block is made of, in the order in which a family registers it: the order of its parameters
// in an FSDP unit, which is PyTorch's for the same model.
enum class BlockPart : uint8_t { kAttentionNorm, kAttention, kMlpNorm, kMlp };

// Frequencies theta^(-2i/d), optionally scaled (Hugging Face `rope_scaling`).
struct RopeConfig {
  enum class Scaling : uint8_t { kNone, kLinear, kLlama3 };
  double theta = 10000;
  double fraction = 1;  // of the channels of a head that are rotated
  Scaling scaling = Scaling::kNone;
  double factor = 1;
  double low_frequency_factor = 1;       // llama3
  double high_frequency_factor = 4;      // llama3
  double original_max_positions = 8192;  // llama3
};

struct ModelConfig {
  std::string family;  // Hugging Face model_type: "gpt2", "llama"
  // Class names of modules, Hugging Face's, for wrap policies.
  std::string class_prefix;  // "GPT2": GPT2Model, GPT2Attention, GPT2MLP
  std::string model_class;   // "GPT2LMHeadModel"
  std::string block_class;   // "GPT2Block"
  std::array<BlockPart, 4> block_order = {BlockPart::kAttentionNorm, BlockPart::kAttention,
                                          BlockPart::kMlpNorm, BlockPart::kMlp};

  int64_t vocabulary = 0;
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn = 0;  // inner width of the MLP
  int64_t max_positions = 0;

  PositionKind positions = PositionKind::kLearned;
  NormKind norm = NormKind::kLayerNorm;
  MlpKind mlp = MlpKind::kActivation;
  Activation activation = Activation::kGeluTanh;  // of the gate, in MlpKind::kGated
  RopeConfig rope;

  int64_t position_offset = 0;    // rows of the position table before that of the first token
  int64_t padding_row = -1;       // of the token table (PyTorch's padding_idx): zeros at first, and
                                  // looking it up gives it no gradient; -1: none
  bool scaled_embedding = false;  // token rows times sqrt(hidden)
  bool embedding_norm = false;    // between the embedding and the first block
  bool post_norm = false;         // x = norm(x + part(x)) instead of x + part(norm(x))
  bool normed_residual = false;   // the stream goes on from the norms' outputs: y = norm(x);
                                  // y + part(y) instead of x + part(y)
  bool final_norm = true;         // between the last block and the head
  bool parallel_residual = false;  // attention and MLP of the same input, added together
  bool scaled_scores = true;       // of attention, by 1 / sqrt(head_dim)
  bool scores_by_layer = false;    // and by 1 / (1 + number of the layer)
  int64_t window = 0;              // keys that a query sees, itself included; 0: all before it

  bool packed_qkv = false;      // one [q | k | v] matrix
  bool packed_by_head = false;  // its rows are [head, (q, k, v), head_dim]
  bool qkv_bias = false;
  bool attention_out_bias = false;
  bool mlp_bias = false;
  ops::WeightLayout weight_layout = ops::WeightLayout::kOutIn;
  bool tied_head = false;
  bool head_bias = false;
  bool shifted_labels = true;  // position t predicts token t + 1; false: token t itself

  double norm_epsilon = 1e-5;
  double embedding_dropout = 0;
  double attention_dropout = 0;
  double residual_dropout = 0;
  double mlp_dropout = 0;  // behind the activation
  double initializer_range = 0.02;
  bool scaled_residual_init = false;  // GPT-2: deviation / sqrt(2 layers) into the residual stream
  bool xavier_init = false;  // fairseq: matrices uniform within sqrt(6 / (in + out)); q, k and v
                             // sqrt(3 / (in + out)), their biases 1 / sqrt(in)

  // Set by a run, not by the model's file: rotary and ALiBi values are rounded to this dtype;
  // empty: they are in the accumulation dtype.
  std::optional<DType> buffer_dtype;

  int64_t bos_token = -1;  // -1: none
  int64_t eos_token = -1;

  double attention_scale(int64_t layer) const;
  double embedding_scale() const;   // of the token rows
  int64_t rotary_dim() const;       // channels of a head that are rotated
  int64_t parameter_count() const;  // tied head once
};

// Reads a Hugging Face config.json (old and new key spellings). Error names the file and key.
ModelConfig read_config(const std::string& path);
// The same from the file's text; `path` names it in errors.
ModelConfig parse_config(const std::string& json, const std::string& path);
// The config.json that Hugging Face transformers loads. `dtype`: of the saved weights,
// torch_name().
std::string config_json(const ModelConfig& config, const std::string& dtype);
// The same for a model that was read from the config.json at `source`: every key of that file is
// kept, in its spelling, and only what is different now is changed; the file's own text when
// nothing is. dtype "": as in the source.
std::string updated_config_json(const ModelConfig& config, const std::string& dtype,
                                const std::string& source);
std::string torch_name(DType dtype);  // "bfloat16"

// Checks extents against each other; Error names the field. Called by both ways to make a config.
void validate(const ModelConfig& config);

// Named sizes for planning and benchmarks: "gpt2-124m", "llama-7b", ... Error for a name of the hub
// ("gpt2", "meta-llama/Llama-3.1-8B"), too: hub_names.h has what else a name may mean.
ModelConfig preset(const std::string& name);
// The preset's own name, where `name` is that or the hub's; "": neither.
std::string preset_named(const std::string& name);
std::vector<std::string> preset_names();
// The nearest of these names, also of the hub's, where one is near; "": none.
std::string near_preset(const std::string& name);

// A config of this family with its conventions (norm, biases, ...), extents still 0.
ModelConfig family_defaults(const std::string& family);

}  // namespace fsdp::models
