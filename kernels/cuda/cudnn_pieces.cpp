// Contract: cudnn_pieces.h.
#include "kernels/cuda/cudnn_pieces.h"

#include "core/error.h"

namespace fsdp::cuda {
namespace {

using Engines = dnn::Plan::Engines;

// Of n in one piece, in two, in three: the last piece may be shorter than the others.
std::vector<int64_t> piece_sizes(int64_t n) {
  std::vector<int64_t> out;
  for (int64_t pieces = 1; pieces <= n; ++pieces) {
    const int64_t size = (n + pieces - 1) / pieces;
    if (out.empty() || size < out.back()) out.push_back(size);
  }
  return out;
}

CudnnAttentionKind piece_of(const CudnnAttentionKind& whole, int64_t batch, int64_t kv_heads) {
  CudnnAttentionKind piece = whole;
  piece.batch = batch;
  piece.heads = whole.heads / whole.kv_heads * kv_heads;
  piece.kv_heads = kv_heads;
  if (whole.bias_heads > 1) piece.bias_heads = piece.heads;
  return piece;
}

// Statistics of a piece begin at 16 bytes too, those of all others then as well.
bool piece_is_aligned(const CudnnAttentionKind& whole, int64_t batch, int64_t kv_heads) {
  const int64_t heads = whole.heads / whole.kv_heads * kv_heads;
  const bool of_samples = batch == whole.batch || batch * whole.statistics_batch_stride % 4 == 0;
  return of_samples && (heads == whole.heads || heads * whole.queries % 4 == 0);
}

struct Asked {
  const CudnnAttentionKind& whole;
  const dnn::Target& target;
  int64_t limit;
};

dnn::Plan::Choice plan_for(const Asked& asked, const CudnnAttentionKind& kind, Engines engines) {
  const int64_t sums = sums_bytes(kind);
  if (sums > asked.limit) {
    return {.plan = nullptr,
            .why = fmt::format("the sums of dq need {} bytes of workspace: expected at most {}",
                               sums, asked.limit),
            .too_large = true};
  }
  try {
    return dnn::Plan::make(attention_graph(kind), asked.target,
                           {.workspace_limit = asked.limit - sums,
                            .engines = engines,
                            .same_bits = kind.deterministic});
  } catch (const Error& error) {  // an operation of the graph is refused already
    return {.plan = nullptr, .why = error.what()};
  }
}

// The largest piece whose workspace fits; samples are taken apart before heads are.
CudnnPieces cut(const Asked& asked, Engines engines) {
  const CudnnAttentionKind& whole = asked.whole;
  CudnnPieces pieces;
  const auto done = [&](int64_t batch, int64_t kv_heads) {
    if (!piece_is_aligned(whole, batch, kv_heads)) return false;
    const CudnnAttentionKind piece = piece_of(whole, batch, kv_heads);
    dnn::Plan::Choice choice = plan_for(asked, piece, engines);
    dnn::Plan::Choice rest;
    const int64_t samples = whole.batch % batch, heads = whole.kv_heads % kv_heads;
    const bool shorter = samples > 0 || heads > 0;
    if (choice.plan && shorter) {
      const CudnnAttentionKind last =
          piece_of(whole, samples > 0 ? samples : batch, heads > 0 ? heads : kv_heads);
      rest = plan_for(asked, last, engines);
      if (!rest.plan) choice = std::move(rest);
    }
    pieces = {.plan = std::move(choice.plan),
              .rest = std::move(rest.plan),
              .why = std::move(choice.why),
              .batch = batch,
              .kv_heads = kv_heads,
              .sums_bytes = sums_bytes(piece)};
    return pieces.plan || !choice.too_large;
  };
  for (const int64_t batch : piece_sizes(whole.batch)) {
    if (done(batch, whole.kv_heads)) return pieces;
  }
  for (const int64_t kv_heads : piece_sizes(whole.kv_heads)) {
    if (kv_heads < whole.kv_heads && done(1, kv_heads)) return pieces;
  }
  return pieces;
}

}  // namespace

// The best engine in pieces before another in one: speed and bits do not hang on the limit.
CudnnPieces cut_for_cudnn(const CudnnAttentionKind& whole, const dnn::Target& target,
                          int64_t limit) {
  CudnnPieces pieces = cut({whole, target, limit}, Engines::kBest);
  if (pieces.plan) return pieces;
  if (CudnnPieces lesser = cut({whole, target, limit}, Engines::kAnyThatFits); lesser.plan) {
    return lesser;
  }
  if (!whole.backward || !whole.deterministic) return pieces;
  CudnnAttentionKind any_order = whole;
  any_order.deterministic = false;
  if (cut({any_order, target, limit}, Engines::kBest).plan) {
    pieces.why += "; train.attention_deterministic: false has a plan that needs less";
  }
  return pieces;
}

}  // namespace fsdp::cuda
