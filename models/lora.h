// LoRA (Hu et al., 2021, arXiv 2106.09685): the model's own parameters stay as they are, and some
// of its linear layers learn a low-rank term:
//   y = W x + b + scale B A dropout(x),   A (r, in), B (out, r),   scale = alpha / r
// Which layers, and what everything is called, is as in PEFT: its adapters are read and written by
// models/adapter_folder.h. Not here: the layer itself (layers.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/module.h"

namespace fsdp::models {

class CausalLM;
class Linear;

struct LoraConfig {
  int64_t r = 8;
  double alpha = 8;
  double dropout = 0;  // of the adapters' inputs, in training
  // Linear layers by their Hugging Face names or how these end ("q_proj", "mlp.c_proj");
  // "all-linear": all of the blocks. Empty: the inputs of attention that PEFT takes for the family.
  std::vector<std::string> targets;
  // One regular expression that a whole name must match, instead of `targets`.
  std::string target_pattern;
  // Layers that are none of them all the same, in the same two ways.
  std::vector<std::string> excluded;
  std::string excluded_pattern;
  std::vector<int64_t> blocks;  // numbers of the blocks whose layers are meant; empty: all
  // What stands before a block's number in the names of its layers, where that matters ("layers").
  std::vector<std::string> block_names;
  bool rank_stabilised = false;  // scale = alpha / sqrt(r) (Kalajdzievski, 2023, arXiv 2312.03732)
  // Other ranks and alphas, by names of layers, how these end, or regular expressions of either;
  // the first one that matches counts.
  std::vector<std::pair<std::string, int64_t>> ranks;
  std::vector<std::pair<std::string, double>> alphas;
  std::string base;  // folder of the model that it belongs to, as the adapter's file says

  double scale() const;  // where neither `ranks` nor `alphas` says otherwise
};

// What one layer gets.
struct LoraRank {
  int64_t r = 8;
  double scale = 1;
};
LoraRank rank_of(const LoraConfig& lora, const std::string& layer);  // its Hugging Face name

// Error for a rank, alpha or dropout out of range. `where`: what the message begins with.
void validate(const LoraConfig& lora, const std::string& where);

// The low-rank term of one linear layer, whose module owns the parameters.
struct LoraTerm {
  Parameter& a;  // (r, in)
  Parameter& b;  // (out, r)
  double scale = 1;
  double dropout = 0;
  int64_t number = 0;  // of the layer among the model's linear layers: part of the dropout's key

  // y + scale B A dropout(x), in the memory of y; see ops::add_linear.
  Tensor add_to(const Tensor& y,  // (..., out)
                const Tensor& x,  // (..., in)
                const ForwardContext& context) const;
};

// The linear layers that a configuration means, in the model's order. Error, with the names there
// are, when there is none, or when one of several targets matches none.
std::vector<Linear*> lora_layers(CausalLM& model, const LoraConfig& lora);
// Gives them their terms (A as torch's linear layers start, B zero: nothing changes at first) and
// freezes all other parameters. Before the model is sharded.
void add_lora(CausalLM& model, const LoraConfig& lora);

bool is_lora(const Parameter& parameter);  // A or B of a layer
// The name of a linear layer: "transformer.h.3.attn.c_attn".
std::string hugging_face_name(const CausalLM& model, const Linear& layer);

}  // namespace fsdp::models
