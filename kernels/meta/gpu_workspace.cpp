// One formula a kernel: those of the Workspace objects in kernels/cuda.
#include "kernels/meta/gpu_workspace.h"

#include <algorithm>

#include "core/layer_args.h"
#include "core/shard_args.h"
#include "core/tensor.h"

namespace fsdp::meta {
namespace {

constexpr int64_t kMultiprocessors = 192;
constexpr size_t kProduct = size_t{32} << 20;  // that cuBLASLt may ask for, matmul_plan.cpp
constexpr int64_t kTableRow = 64;              // bytes, of a segment, a span or a run
constexpr int64_t kCheckOfIndices = 16;

int64_t blocks_for(int64_t count, int64_t each) { return (count + each - 1) / each; }

size_t rounded(int64_t bytes) { return rounded_bytes(static_cast<size_t>(bytes)); }

size_t of_table(size_t rows) { return rounded(static_cast<int64_t>(rows) * kTableRow); }

}  // namespace

// A bias that cuBLASLt cannot add is added to an f32 copy. It adds those of products whose rows are
// whole packets of 16 bytes.
size_t gpu_workspace(const MatmulArgs& args) {
  const auto whole = [](const Tensor& t) {
    return t.shape().last() * static_cast<int64_t>(size_of(t.dtype())) % 16 == 0;
  };
  const bool copies = args.bias && args.c.dtype() != DType::kF32 &&
                      !(whole(args.a) && whole(args.b) && whole(args.c));
  return kProduct + (copies ? rounded(4 * args.c.numel()) : 0);
}

// A sum of every column for each chunk of 64 rows or more.
size_t gpu_workspace(const SumRowsArgs& args) {
  constexpr int64_t kColumnsOfBlock = 32, kBlocks = 8 * kMultiprocessors, kChunk = 64;
  const int64_t columns = args.out.numel(), rows = args.x.shape().rows();
  const int64_t across = std::max<int64_t>(1, columns / (8 * kColumnsOfBlock));
  return rounded(4 * columns * std::min(blocks_for(rows, kChunk), blocks_for(kBlocks, across)));
}

size_t gpu_workspace(const ActivationBackwardArgs& args) {
  return args.dbias ? gpu_workspace(SumRowsArgs{.x = args.x, .out = *args.dbias}) : 0;
}

// Two sums of every column for each block; a block of fewer threads has fewer columns.
size_t gpu_workspace(const NormBackwardArgs& args) {
  constexpr int64_t kThreadsOfMultiprocessor = 512, kFewest = 32, kColumnsOfThread = 32;
  const int64_t columns = args.x.shape().last(),
                rows = args.x.numel() / std::max<int64_t>(1, columns);
  const int64_t threads = std::clamp(columns / kColumnsOfThread, kFewest, kThreadsOfMultiprocessor);
  const int64_t blocks = kThreadsOfMultiprocessor / threads * 2 * kMultiprocessors;
  return rounded(4 * 2 * columns * std::min(rows, blocks));
}

size_t gpu_workspace(const CrossEntropyArgs& args) {
  return rounded(4 * args.labels.numel()) + rounded(kCheckOfIndices);
}

size_t gpu_workspace(const PowerSumArgs& args) {
  return of_table(args.spans.size()) + rounded(8 * 8 * kMultiprocessors);
}

// The table, and what the rule makes of each row.
size_t gpu_workspace(const ShardUpdate& args) { return 2 * of_table(args.segments.size()); }

size_t gpu_workspace(const StochasticRoundArgs& args) { return of_table(args.runs.size()); }

size_t gpu_workspace(const EmbeddingForwardArgs&) { return rounded(kCheckOfIndices); }

// Pairs of a token and its index, twice, to sort them; two partial rows for each chunk of them.
size_t gpu_workspace(const EmbeddingBackwardArgs& args) {
  const int64_t tokens = args.tokens.numel(), columns = args.dtable.shape()[1];
  constexpr int64_t kPair = 8, kChunk = 32;
  return rounded(2 * kPair * tokens) + rounded(4 * 2 * columns * blocks_for(tokens, kChunk)) +
         rounded(kCheckOfIndices);
}

size_t attention_limit(size_t device) { return std::max(size_t{1} << 30, device / 32); }

int64_t AnyOrderAttention::sums_bytes() const { return 4 * heads * queries * head_dim; }

// As cuDNN 9.19 says: 16-bit gradients of shared keys and values by query head, and on some GPUs
// sums of dq that it does not show, in eights of rows.
int64_t AnyOrderAttention::plan_bytes() const {
  constexpr int64_t kAlways = 256, kRows = 8;
  const int64_t by_head = shares_keys ? 2 * 2 * heads * keys * head_dim : 0;
  return kAlways + by_head + 4 * heads * blocks_for(queries, kRows) * kRows * head_dim;
}

size_t any_order_workspace(const AttentionBackwardArgs& args, size_t limit) {
  const AttentionArgs& in = args.in;
  const Shape& q = in.q.tensor->shape();
  const bool hides = in.key_bias && in.hides_keys;
  if (size_of(args.out.dtype()) != 2 || in.dropout.probability > 0 || hides) return 0;
  const AnyOrderAttention whole = {.heads = q[0] * in.q.heads,
                                   .queries = q[1],
                                   .keys = in.extents().keys,
                                   .head_dim = in.q.head_dim,
                                   .shares_keys = in.q.heads > in.k.heads};
  const size_t bytes = rounded(whole.sums_bytes()) + rounded(whole.plan_bytes());
  return bytes <= limit ? bytes : rounded_bytes(limit) + kAllocationGranularity;
}

}  // namespace fsdp::meta
