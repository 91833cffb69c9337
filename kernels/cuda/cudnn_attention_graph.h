// Attention as graphs for cuDNN: what is computed, not whether it should be (cudnn_attention.h).
//
// [Note: attention for cuDNN]
// Its engines recognise attention in a graph of products, elementwise operations and sums, in the
// order in which NVIDIA's cudnn-frontend writes them, and run the whole as one kernel; the T x T
// tensors exist on paper only. We write these graphs ourselves, through the library's C interface,
// and not with cudnn-frontend: that takes half a minute and 2 GB to compile and headers of its own,
// and ends in the same graphs and engines. The library has attention as one operation as well, but
// without masks (before 9.21).
// A backward pass that adds up dq by atomics gives other bits every time. Where the product is
// written straight to dq, an engine keeps all of dscores in its workspace and sums in order:
// B * heads * T * T elements, which cudnn_attention.cpp keeps within a limit. Where the product is
// written to f32 sums in memory (`deterministic` false), an engine adds to what is there, in any
// order; whoever runs the plan sets the sums to zero before. cuDNN 9.19 does not mark such plans:
// none of its notes tells them from the others, so that the graph alone decides.
#pragma once

#include <compare>

#include "core/dtype.h"
#include "kernels/cuda/cudnn_graph.h"

namespace fsdp::cuda {

// Element (b, h, t, d) of a tensor of heads lies at b * batch + h * head + t * row + d.
struct HeadStrides {
  int64_t batch = 0, row = 0, head = 0;
  auto operator<=>(const HeadStrides&) const = default;
};

// All that a plan depends on. See AttentionArgs for the rule.
struct CudnnAttentionKind {
  bool backward = false;
  bool deterministic = true;  // false: dq is added up in any order; with backward
  DType dtype = DType::kBF16;
  int64_t batch = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0, head_dim = 0;
  bool causal = true;                   // then queries = keys
  int64_t window = 0;                   // 0: none
  bool documents = false;               // keys before kFirstKey are hidden
  int64_t bias_heads = 0;               // 0: no key bias; 1 or heads
  int64_t bias_head_stride = 0;         // elements
  HeadStrides q, k, v, out;             // dout is laid out as out
  int64_t statistics_batch_stride = 0;  // of log_sum_exp and delta; heads * queries at least
  HeadStrides dq, dk, dv;               // with backward

  auto operator<=>(const CudnnAttentionKind&) const = default;
};

// Names of tensors and numbers in the graphs.
enum AttentionTensor : int64_t {
  kQueryRows = 1,
  kKeyRows,
  kValueRows,
  kOutRows,
  kLogSumExp,
  kKeyBias,
  kFirstKey,  // i32 (B, queries)
  kDOut,
  kDelta,
  kDQuery,
  kDKey,
  kDValue,
  kDQuerySums,  // (B, heads, queries, head_dim) in f32, packed; unless deterministic
  kScale,       // f32 numbers from here on
  kHidden,      // minus infinity
  kWindow,
  kOne,
};

// Bytes of kDQuerySums; 0: the graph has none.
int64_t sums_bytes(const CudnnAttentionKind& kind);

dnn::Graph attention_graph(const CudnnAttentionKind& kind);

}  // namespace fsdp::cuda
