// The sizes that `fsdp bench kernels` works in: those of a model, some of them changed by name.
#pragma once

#include <string>

#include "models/config.h"

namespace fsdp::tools {

struct KernelExtents {
  models::ModelConfig model;
  int64_t batch = 0;
  int64_t length = 0;  // tokens of a sequence
  DType compute = DType::kF32;
  DType gradient = DType::kF32;  // of weights
  int64_t elements = 0;          // of a flat shard, for the optimizer's kernels
};

struct KernelExtentsOptions {
  std::string model = "gpt2-124m";  // a Hugging Face folder or the name of a preset
  std::string shape;                // "hidden=1024,ffn=4096": changes of the model's sizes
  int64_t batch = 4;
  int64_t length = 64;  // tokens of a sequence
  DType dtype = DType::kF32;
};
// Unless `shape` says otherwise the flat shard has as many elements as the model's blocks and its
// root on average. Error names the size that is unknown or does not fit.
KernelExtents kernel_extents(const KernelExtentsOptions& options);

}  // namespace fsdp::tools
