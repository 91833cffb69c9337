// A problem of attention cut into pieces whose workspace stays within a limit, and the plans of the
// pieces. It asks cuDNN and computes nothing, so it works for a GPU that is only described:
// tests/kernels/cuda/cudnn_pieces_test.cpp prints what it finds for four of them.
// Read next: cudnn_attention_graph.h.
#pragma once

#include <memory>
#include <string>

#include "kernels/cuda/cudnn_attention_graph.h"

namespace fsdp::cuda {

// A plan for `batch` samples and `kv_heads` key-value heads (with their query heads) at a time.
struct CudnnPieces {
  std::unique_ptr<dnn::Plan> plan;  // null: cuDNN does not do it
  std::unique_ptr<dnn::Plan> rest;  // of the last piece, where that is shorter
  std::string why;
  int64_t batch = 0, kv_heads = 0;
  int64_t sums_bytes = 0;  // of dq, of the largest piece
};

// limit: bytes of workspace of a piece, the sums of dq among them.
CudnnPieces cut_for_cudnn(const CudnnAttentionKind& whole, const dnn::Target& target,
                          int64_t limit);

}  // namespace fsdp::cuda
