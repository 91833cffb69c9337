// Candidates in turns, so that a change of clocks meets all of them, each call on other operands
// than the one before: together they are larger than the device's cache.
#include "kernels/cuda/matmul_timing.h"

#include <algorithm>
#include <limits>

#include "kernels/cuda/check.h"
#include "kernels/cuda/stream.h"

namespace fsdp::cuda {
namespace {

constexpr int kRounds = 8;  // the first is not counted: code is loaded then
constexpr size_t kMostSets = 64;
constexpr float kClearly = 0.98f;  // of the first one's time: what takes less is not noise

size_t padded(size_t bytes) { return (bytes + 511) / 512 * 512; }

// Operands and results of one product, one behind the other.
struct Set {
  explicit Set(const MatmulKind& kind) : epilogue(kind.epilogue) {
    const auto bytes_of = [](int64_t rows, int64_t row, DType dtype) {
      return padded(static_cast<size_t>(rows * row) * size_of(dtype));
    };
    b = bytes_of(kind.transpose_a ? kind.k : kind.m, kind.lda, kind.operand);
    c = b + bytes_of(kind.k, kind.n, kind.operand);
    bias = c + bytes_of(kind.m, kind.ldc, kind.result);
    pre_activation = bias + bytes_of(1, kind.n, kind.operand);
    bytes = pre_activation + bytes_of(kind.m, kind.ldc, kind.result);
  }
  MatmulPointers at(std::byte* data) const {
    const bool with_bias = epilogue & lt::kEpilogueBias, gelu = epilogue & lt::kEpilogueGeluAux;
    return {.a = data,
            .b = data + b,
            .c = data + c,
            .bias = with_bias ? data + bias : nullptr,
            .pre_activation = gelu ? data + pre_activation : nullptr};
  }

  int epilogue;
  size_t b, c, bias, pre_activation, bytes;
};

// Device memory that may be refused.
class Scratch {
 public:
  Scratch(const Op& op, size_t bytes) : op_(op), bytes_(bytes) {
    const cudaError_t error = cudaMallocAsync(&data_, bytes, op.stream());
    if (error == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      data_ = nullptr;
      return;
    }
    check_call(error, "cudaMallocAsync");
    op.backend().ledger().add(MemoryCategory::kWorkspace, bytes);
  }
  ~Scratch() {
    if (data_) op_.backend().release(op_.cuda_stream(), data_, bytes_, MemoryCategory::kWorkspace);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  const Op& op_;
  size_t bytes_;
  void* data_ = nullptr;
};

struct Call {
  std::shared_ptr<CUevent_st> begin, end;
};

float median_ms(const std::vector<Call>& calls) {
  if (calls.empty()) return std::numeric_limits<float>::infinity();
  std::vector<float> ms(calls.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    CUDA_CHECK(cudaEventElapsedTime(&ms[i], calls[i].begin.get(), calls[i].end.get()));
  }
  std::nth_element(ms.begin(), ms.begin() + static_cast<ptrdiff_t>(ms.size() / 2), ms.end());
  return ms[ms.size() / 2];
}

// What each candidate was called for: fewer where cuBLASLt refuses it after all. `workspace` is
// followed by `sets` of operands.
std::vector<std::vector<Call>> enqueue_calls(const Op& op, lt::Handle handle, MatmulPlan& plan,
                                             std::byte* workspace, std::byte* operands,
                                             size_t sets) {
  const Set set(plan.kind());
  const auto events =
      std::make_shared<EventPool>(op.backend().options().device, cudaEventBlockingSync);
  std::vector<std::vector<Call>> calls(plan.candidates().size());
  size_t next = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < calls.size(); ++i) {
      const Call call = {events->take(), events->take()};
      const MatmulPointers pointers = set.at(operands + next++ % sets * set.bytes);
      CUDA_CHECK(cudaEventRecord(call.begin.get(), op.stream()));
      const lt::Status status = plan.run_candidate(handle, i, pointers, workspace, op.stream());
      CUDA_CHECK(cudaEventRecord(call.end.get(), op.stream()));
      if (round > 0 && status == lt::kSuccess) calls[i].push_back(call);
    }
  }
  return calls;
}

}  // namespace

std::optional<size_t> fastest_candidate(const Op& op, lt::Handle handle, MatmulPlan& plan) {
  const Set set(plan.kind());
  const size_t sets = std::min(1 + 2 * op.device().cache / set.bytes, kMostSets);
  size_t workspace = 0;
  for (const lt::HeuristicResult& each : plan.candidates()) {
    workspace = std::max(workspace, padded(each.workspace_bytes));
  }
  const size_t bytes = workspace + sets * set.bytes;
  const Scratch scratch(op, bytes);
  if (!scratch.data()) return std::nullopt;
  // Numbers around 0.01 or 1, whatever the dtype.
  op.started(cudaMemsetAsync(scratch.data(), 0x3c, bytes, op.stream()), "cudaMemsetAsync");
  // What was before ends first: else part of the calls would find the GPU busy and part idle.
  op.started(cudaStreamSynchronize(op.stream()),  // survives: it changes times alone
             "cudaStreamSynchronize");
  const std::vector<std::vector<Call>> calls =
      enqueue_calls(op, handle, plan, scratch.data(), scratch.data() + workspace, sets);
  op.started(cudaStreamSynchronize(op.stream()), "cudaStreamSynchronize");
  std::vector<float> ms;
  for (const std::vector<Call>& of_candidate : calls) ms.push_back(median_ms(of_candidate));
  const auto best = static_cast<size_t>(std::min_element(ms.begin(), ms.end()) - ms.begin());
  if (ms[best] == std::numeric_limits<float>::infinity()) return std::nullopt;
  return ms[best] < kClearly * ms[0] ? best : 0;
}

}  // namespace fsdp::cuda
