// What one training step consists of, from the model's configuration and the batch: its matrix
// products by shape, and its other passes over memory by bytes. The numbers per op stand in
// core/ops/cost.h; the composition here mirrors models/block.cpp and models/causal_lm.cpp (a test
// counts the kernels that a real step runs).
// Left out: collectives, and sums of gradients where a tensor has several readers (q, k, v).
// Read next: tools/bench/speed_of_light.h.
#pragma once

#include <string>
#include <vector>

#include "core/ops/cost.h"
#include "models/config.h"
#include "optim/optimizer.h"

namespace fsdp::tools {

struct StepExtents {
  models::ModelConfig model;
  int64_t batch = 0;   // sequences on this rank
  int64_t length = 0;  // tokens of each
  DType compute = DType::kF32;
  DType gradient = DType::kF32;  // FsdpOptions::reduce_dtype
  int shards = 1;                // of the optimizer's work: ranks with full_shard, else 1
  optim::OptimizerOptions optimizer = {};
};

struct StepProduct {
  std::string name;  // "qkv forward"
  ops::MatmulExtents extents;
  int64_t count = 0;  // per step
};

struct StepPass {
  std::string kernel;  // as in traces: "layer_norm_forward"
  int64_t bytes = 0;   // of all calls of a step
  int64_t count = 0;
};

struct StepCost {
  std::vector<StepProduct> products;  // without attention's
  std::vector<StepPass> passes;       // one per kernel, in order of first use; without attention's
  int64_t attention_flops = 0;

  int64_t product_flops() const;
  int64_t pass_bytes() const;
};
StepCost step_cost(const StepExtents& step);

}  // namespace fsdp::tools
