// Prepared matrix products: descriptors and algorithm of cuBLASLt, chosen once per kind of product:
// the first that the heuristic names, or, where that was asked for, the fastest of the first few.
// [Note: rows and columns] cuBLASLt stores by columns. A row-major c (M, N) is its N x M matrix D,
// so it multiplies D = op(b) op(a): operands change places, and what is transposed stays so.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "core/dtype.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/op.h"

namespace fsdp::cuda {

class MatmulChoices;

// All that the choice of an algorithm may depend on.
struct MatmulKind {
  int64_t m = 0, n = 0, k = 0;  // c (M, N), sums over K; row-major
  int64_t lda = 0, ldc = 0;     // elements from row to row of a and c; those of b are not padded
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;  // c += the product
  bool tf32 = false;
  int multiprocessors = 0;  // that it may count on; 0: all
  DType operand = DType::kF32, result = DType::kF32;
  int epilogue = lt::kEpilogueDefault;
  // of a, b and c, bytes: a power of two, at most 256
  uint32_t alignment_a = 256, alignment_b = 256, alignment_c = 256;
  uint32_t alignment_bias = 256;  // with a bias epilogue

  auto operator<=>(const MatmulKind&) const = default;
};

struct MatmulPointers {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;      // (N), with a bias epilogue
  void* pre_activation = nullptr;  // (M, N), with a GELU epilogue
};

class MatmulPlan {
 public:
  // With at most `wanted` candidates. Null when cuBLASLt has no algorithm for it.
  static std::unique_ptr<MatmulPlan> make(lt::Handle handle, const MatmulKind& kind,
                                          size_t workspace_limit, int wanted);
  ~MatmulPlan();

  const MatmulKind& kind() const { return kind_; }
  // As the heuristic orders them; all give the same bits every time.
  const std::vector<lt::HeuristicResult>& candidates() const { return candidates_; }
  void choose(size_t candidate) { chosen_ = candidate; }  // until then the first

  size_t workspace_bytes() const { return candidates_[chosen_].workspace_bytes; }
  lt::Status run(lt::Handle handle, const MatmulPointers& pointers, void* workspace,
                 cudaStream_t stream) {
    return run_candidate(handle, chosen_, pointers, workspace, stream);
  }
  lt::Status run_candidate(lt::Handle handle, size_t candidate, const MatmulPointers& pointers,
                           void* workspace, cudaStream_t stream);

 private:
  explicit MatmulPlan(const MatmulKind& kind);
  bool ask(lt::Handle handle, size_t workspace_limit, int wanted);

  MatmulKind kind_;
  lt::MatmulDesc desc_ = nullptr;
  lt::MatrixLayout a_ = nullptr, b_ = nullptr, d_ = nullptr;  // in cuBLASLt's order
  std::vector<lt::HeuristicResult> candidates_;
  size_t chosen_ = 0;
};

// Every kind of product seen so far.
class MatmulPlans {
 public:
  explicit MatmulPlans(const CudaBackend& backend);
  ~MatmulPlans();
  // Null: there is no algorithm. `op` is the one that asks; timing goes before it on its stream.
  MatmulPlan* find(const Op& op, const MatmulKind& kind);
  lt::Handle handle() const { return handle_; }

 private:
  size_t choose(const Op& op, MatmulPlan& plan);

  lt::Handle handle_ = nullptr;
  size_t workspace_limit_;
  std::function<void(const std::string&)> note_;
  std::unique_ptr<MatmulChoices> choices_;  // null: not timed
  // As many as rows of batches have lengths, times the products of the model.
  std::map<MatmulKind, std::unique_ptr<MatmulPlan>> plans_;
};

}  // namespace fsdp::cuda
