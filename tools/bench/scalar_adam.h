// AdamW's update as one thread takes it without vector instructions: what the CPU's kernel is held
// against (`fsdp bench kernels`, requirement S4.3). Only measured. Not here: the kernel
// (kernels/cpu/shard_update.cpp).
#pragma once

#include "tools/bench/kernel_case.h"

namespace fsdp::tools {

struct AdamElements {
  float* master;
  const float* grad;
  float* exp_avg;
  float* exp_avg_sq;
  int64_t n;
};
struct AdamNumbers {
  float learning_rate = 1e-4f, beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f, weight_decay = 0.1f;
  int t = 1;
};
// Formulas: core/optimizer_rules/adam.h, AdamW.
void scalar_adamw(const AdamElements& elements, const AdamNumbers& numbers);

constexpr const char* kScalarAdam = "adam scalar loop on one thread";  // its line's name
// In f32, whatever the run computes in, and of fewer elements: what counts is the rate. For a
// backend whose memory the host reaches.
KernelCase scalar_adam_line(int64_t of_kernel);

}  // namespace fsdp::tools
