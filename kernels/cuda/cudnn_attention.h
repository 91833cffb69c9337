// Attention by cuDNN, where its rule is ours: which problems are handed over, the plans made so
// far, and the pieces that a backward pass is cut into. Read next: cudnn_attention_graph.h (what
// cuDNN is told), attention.cu (the own kernels, which take the rest).
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "kernels/cuda/cudnn_attention_graph.h"
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
  // How a problem is done: a plan for `batch` samples and `kv_heads` key-value heads (with their
  // query heads) at a time.
  struct Pieces {
    std::unique_ptr<dnn::Plan> plan;  // null: cuDNN does not do it
    std::unique_ptr<dnn::Plan> rest;  // of the last piece, where that is shorter
    std::string why;
    int64_t batch = 0, kv_heads = 0;
  };
  struct Pointers;

  bool left(const Op& op, const std::string& why) const;  // false, or the error
  void tell(const Op& op, const std::string& why);        // once: why a problem of its rule is left
  dnn::Plan::Choice plan_for(const CudnnAttentionKind& kind, dnn::Plan::Engines engines) const;
  Pieces cut(const CudnnAttentionKind& whole, dnn::Plan::Engines engines) const;
  const Pieces& pieces_of(const CudnnAttentionKind& whole);
  bool run(const Op& op, const CudnnAttentionKind& whole, double scale, const Pointers& pointers);

  CudaOptions options_;
  dnn::Handle handle_ = nullptr;
  std::map<CudnnAttentionKind, Pieces> pieces_;
  int64_t runs_ = 0;
  std::set<std::string> told_;
};

}  // namespace fsdp::cuda
