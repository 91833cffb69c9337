// What a session is made of, as options, and what follows from them before there is a session:
// explain and inspect ask the same. Not here: where a session computes (engine.h), the
// configuration file that most options come from (tools/config), and how it becomes options
// (tools/train/config_to_session.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/fsdp/fully_sharded.h"
#include "models/causal_lm.h"
#include "optim/loss_scaler.h"
#include "optim/optimizer.h"
#include "tools/engine/decay_and_mean.h"

namespace fsdp {

struct SessionOptions {
  models::ModelConfig model;
  // Low-rank terms are what is trained; the model's own parameters are frozen.
  std::optional<models::LoraConfig> lora;
  int64_t max_length = 0;  // longest sequence of any batch
  comm::WrapPolicy wrap;   // empty: one unit per transformer block
  // What runs before the first block and what runs after the last one are units, where `wrap`
  // leaves them to the root. Not of a model with a tied head.
  bool split_root = false;
  comm::FsdpOptions fsdp;  // param_dtype is the compute dtype
  bool training = true;    // false: no optimizer state
  optim::OptimizerOptions optimizer;
  Decay decay = Decay::kMatrices;
  double clip_norm = 1.0;  // <= 0: no clipping
  double clip_power = 2;   // of the norm: 1, 2, 3, ... or infinity
  optim::LossScalerOptions loss_scale;
  LossMean loss_mean = LossMean::kTokens;
  RecomputeMode recompute = RecomputeMode::kNone;
  int64_t recompute_every = 1;  // in every k-th block
  ops::HeadOptions head;        // of the loss
  // Parameters that keep their values: Hugging Face names; * stands for any characters.
  std::vector<std::string> frozen;
  uint64_t seed = 0;  // of dropout
};

// Those whose Hugging Face name matches a pattern keep their values. Error when a pattern matches
// none, or all are frozen.
void freeze_parameters(const models::ModelConfig& config, const std::vector<std::string>& patterns,
                       const std::vector<Parameter*>& parameters);

comm::WrapPolicy wrap_of(const SessionOptions& options);               // of a models::CausalLM
std::vector<DType> computed_dtypes(const comm::FsdpOptions& options);  // of the run and its units
// Error when two tables that are used together are units and the arena has one buffer.
void check_buffers(Module& model, const comm::WrapPolicy& wrap, const comm::FsdpOptions& options,
                   int shards);

// Which parameters weight decay shrinks. Before sharding: a flat shard is one-dimensional and would
// hide which parameters are matrices.
void set_decay(const std::vector<Parameter*>& parameters, Decay decay);

}  // namespace fsdp
