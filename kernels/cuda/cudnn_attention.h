// Attention by cuDNN, where its rule is ours: which problems are handed over, the plans made so
// far, and their runs. Read next: cudnn_pieces.h (a backward pass cut so that it fits),
// cudnn_attention_graph.h (what cuDNN is told), attention.cu (the own kernels, which take the
// rest).
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "core/layer_args.h"
#include "kernels/cuda/cudnn_pieces.h"
#include "kernels/cuda/op.h"

namespace fsdp::cuda {

// Why attention of this kind is not cuDNN's; empty: it is. Whether an engine of this GPU does it
// shows only when a plan is made.
std::string not_for_cudnn(const AttentionForwardArgs& args);
std::string not_for_cudnn(const AttentionBackwardArgs& args);

class CudnnAttention {
 public:
  explicit CudnnAttention(const CudaOptions& options);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  // False: it is left to the own kernels. Error instead where cuDNN was asked for by name.
  bool forward(const Op& op, const AttentionForwardArgs& args);
  bool backward(const Op& op, const AttentionBackwardArgs& args);

  int64_t runs() const { return runs_; }  // of plans so far: a call may be several

 private:
  struct Pointers;

  bool left(const Op& op, const std::string& why) const;  // false, or the error
  void tell(const Op& op, const std::string& why);        // once: why a problem of its rule is left
  const CudnnPieces& pieces_of(const CudnnAttentionKind& whole);
  bool run(const Op& op, const CudnnAttentionKind& whole, double scale, const Pointers& pointers);

  CudaOptions options_;
  dnn::Handle handle_ = nullptr;
  std::map<CudnnAttentionKind, CudnnPieces> pieces_;  // a plan for each length that batches have
  int64_t runs_ = 0;
  std::set<std::string> told_;  // at most one for each of the pieces
};

}  // namespace fsdp::cuda
