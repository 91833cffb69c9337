// Small models with low-rank terms, for tests of what trains them.
#pragma once

#include "models/causal_lm.h"
#include "tests/support/sharded_run.h"

namespace fsdp::test {

// Like causal_lm() with terms on every linear layer of the blocks.
inline SubjectFactory lora_causal_lm(const models::ModelConfig& config, double dropout,
                                     RecomputeMode recompute = RecomputeMode::kNone) {
  return [=](Backend& backend, DType dtype) {
    Subject subject = causal_lm(config, recompute)(backend, dtype);
    models::add_lora(dynamic_cast<models::CausalLM&>(*subject.module),
                     {.r = 3, .alpha = 5, .dropout = dropout, .targets = {"all-linear"}});
    return subject;
  };
}

}  // namespace fsdp::test
