// What one training step consists of: its matrix products by shape, and its other kernels with
// their FLOPs and bytes. All are sums over the calls of a step without bytes (meta_run.h); the cost
// of one call stands in core/kernel_args.h. Left out: collectives, and kernels on other streams
// than compute's. Read next: tools/bench/speed_of_light.h.
#pragma once

#include <string>
#include <vector>

#include "tools/predict/meta_run.h"

namespace fsdp::tools {

struct StepProduct {
  MatmulExtents extents;
  int64_t count = 0;  // per step
};

struct StepPass {
  std::string kernel;  // as in traces: "layer_norm_forward"
  Cost cost;           // of all calls of a step
  int64_t count = 0;
};

struct StepCost {
  std::vector<StepProduct> products;  // without attention's
  std::vector<StepPass> passes;       // one per kernel without products, in order of first use
  std::vector<StepPass> attention;    // forward, backward

  int64_t product_flops() const;
  int64_t attention_flops() const;
  int64_t pass_bytes() const;
};
StepCost step_cost(const std::vector<StepCall>& calls);

}  // namespace fsdp::tools
