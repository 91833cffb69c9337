// Adds up the calls of a step.
#include "tools/predict/step_cost.h"

#include <algorithm>

namespace fsdp::tools {
namespace {

void add(std::vector<StepPass>& passes, const std::string& kernel, const Cost& cost,
         int64_t times) {
  const auto found = std::find_if(passes.begin(), passes.end(),
                                  [&](const StepPass& p) { return p.kernel == kernel; });
  StepPass& pass = found != passes.end() ? *found : passes.emplace_back(StepPass{.kernel = kernel});
  pass.cost.flops += times * cost.flops;
  pass.cost.bytes += times * cost.bytes;
  pass.count += times;
}

void add(std::vector<StepProduct>& products, const MatmulExtents& extents, int64_t times) {
  const auto found = std::find_if(products.begin(), products.end(),
                                  [&](const StepProduct& p) { return p.extents == extents; });
  StepProduct& product =
      found != products.end() ? *found : products.emplace_back(StepProduct{.extents = extents});
  product.count += times;
}

}  // namespace

StepCost step_cost(const std::vector<StepCall>& calls) {
  StepCost cost;
  for (const StepCall& call : calls) {
    if (!call.computes || call.cost.bytes == 0) continue;
    if (call.product) {
      add(cost.products, *call.product, call.times);
      // A product with an activation also writes the values before the activation. On a CPU the
      // activation is a pass of its own, which reads these values.
      const int64_t besides = call.cost.bytes - matmul_cost(*call.product).bytes;
      if (besides > 0) add(cost.passes, "activation_forward", {.bytes = 2 * besides}, call.times);
    } else {
      add(call.name.starts_with("attention") ? cost.attention : cost.passes, call.name, call.cost,
          call.times);
    }
  }
  return cost;
}

int64_t StepCost::product_flops() const {
  int64_t sum = 0;
  for (const StepProduct& p : products) sum += matmul_cost(p.extents).flops * p.count;
  return sum;
}

int64_t StepCost::attention_flops() const {
  int64_t sum = 0;
  for (const StepPass& p : attention) sum += p.cost.flops;
  return sum;
}

int64_t StepCost::pass_bytes() const {
  int64_t sum = 0;
  for (const StepPass& p : passes) sum += p.cost.bytes;
  return sum;
}

}  // namespace fsdp::tools
