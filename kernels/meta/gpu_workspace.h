// What the kernels of kernels/cuda take for their own work, at the most: one call at a time, given
// back with it. The GPU is not known, so its multiprocessors are taken to be as many as the largest
// has. Attention by cuDNN is not among them: a plan says itself what it takes, up to
// cuda::CudaOptions::attention_workspace.
// tests/cuda_emulator/ranks/predicted_memory_test.cpp holds runs against these bounds.
#pragma once

#include "core/kernel_args.h"

namespace fsdp::meta {

// Bytes, rounded up as the ledger does.
size_t gpu_workspace(const MatmulArgs& args);
size_t gpu_workspace(const SumRowsArgs& args);
size_t gpu_workspace(const ActivationBackwardArgs& args);
size_t gpu_workspace(const NormBackwardArgs& args);
size_t gpu_workspace(const CrossEntropyArgs& args);
size_t gpu_workspace(const PowerSumArgs& args);
size_t gpu_workspace(const ShardUpdate& args);
size_t gpu_workspace(const StochasticRoundArgs& args);
size_t gpu_workspace(const EmbeddingForwardArgs& args);
size_t gpu_workspace(const EmbeddingBackwardArgs& args);

}  // namespace fsdp::meta
