// What the kernels of kernels/cuda take for their own work, at the most: one call at a time, given
// back with it. The GPU is not known, so its multiprocessors are taken to be as many as the largest
// has. Attention by cuDNN is among them where it adds up dq in any order. Where it keeps an order,
// a plan says itself what it takes, up to cuda::CudaOptions::attention_workspace.
// tests/cuda_emulator/ranks/gpu_workspace_test.cpp holds calls against these bounds,
// tests/kernels/cuda/cudnn_pieces_test.cpp plans of cuDNN.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fsdp {
struct ActivationBackwardArgs;
struct AttentionBackwardArgs;
struct CrossEntropyArgs;
struct EmbeddingBackwardArgs;
struct EmbeddingForwardArgs;
struct MatmulArgs;
struct NormBackwardArgs;
struct PowerSumArgs;
struct ShardUpdate;
struct StochasticRoundArgs;
struct SumRowsArgs;
}  // namespace fsdp

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

// What cuDNN's attention may take on a GPU of so many bytes, as kernels/cuda/cuda_backend.cpp sets
// cuda::CudaOptions::attention_workspace.
size_t attention_limit(size_t device);

// The backward pass of attention where cuda::CudaOptions::attention_deterministic is false.
struct AnyOrderAttention {
  int64_t heads = 0;  // of all samples
  int64_t queries = 0, keys = 0, head_dim = 0;
  bool shares_keys = false;  // between query heads

  int64_t sums_bytes() const;  // of dq
  int64_t plan_bytes() const;  // what a plan of cuDNN takes besides
};
// Cut into pieces that stay within the limit. 0: the own kernels compute it, and take nothing. Of
// documents: with runtime.attention: cudnn; else the own kernels compute these, too.
size_t any_order_workspace(const AttentionBackwardArgs& args, size_t limit);

}  // namespace fsdp::meta
