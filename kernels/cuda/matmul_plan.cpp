// Descriptors and the choice of the algorithm, among those that give the same bits every time. See
// [Note: rows and columns] in the header and [Note: whose choice counts] in matmul_choices.h.
#include "kernels/cuda/matmul_plan.h"

#include "kernels/cuda/check.h"
#include "kernels/cuda/matmul_choices.h"
#include "kernels/cuda/matmul_timing.h"

namespace fsdp::cuda {
namespace {

void check(lt::Status status, const char* call) {
  if (status == lt::kSuccess) return;
  check_call(fault(), fmt::format("cublasLt{}", call));
  fail("[matmul] {}: status {} of cuBLASLt", call, static_cast<int>(status));
}

cudaDataType type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF16:
      return CUDA_R_16F;
    default:
      fail("[matmul] dtype: expected f32, bf16 or f16 on a GPU, got {}", name_of(dtype));
  }
}

template <typename T>
void set(lt::MatmulDesc desc, lt::DescAttribute attribute, const T& value) {
  check(lt::library().desc_set(desc, attribute, &value, sizeof value), "MatmulDescSetAttribute");
}

template <typename T>
void set(lt::Preference preference, lt::PreferenceAttribute attribute, const T& value) {
  check(lt::library().preference_set(preference, attribute, &value, sizeof value),
        "MatmulPreferenceSetAttribute");
}

// A matrix of rows x columns, or stored transposed; its stored columns are `ld` elements apart.
lt::MatrixLayout layout(DType dtype, int64_t rows, int64_t columns, bool transposed, int64_t ld) {
  if (transposed) std::swap(rows, columns);
  lt::MatrixLayout made = nullptr;
  check(lt::library().layout_create(&made, type_of(dtype), static_cast<uint64_t>(rows),
                                    static_cast<uint64_t>(columns), ld),
        "MatrixLayoutCreate");
  return made;
}

}  // namespace

MatmulPlan::MatmulPlan(const MatmulKind& kind) : kind_(kind) {
  const lt::ComputeType compute = kind.tf32 ? lt::kCompute32FFastTF32 : lt::kCompute32F;
  check(lt::library().desc_create(&desc_, compute, CUDA_R_32F), "MatmulDescCreate");
  set(desc_, lt::kTransA, kind.transpose_b ? lt::kOpT : lt::kOpN);
  set(desc_, lt::kTransB, kind.transpose_a ? lt::kOpT : lt::kOpN);
  set(desc_, lt::kEpilogue, kind.epilogue);
  if (kind.multiprocessors > 0) set(desc_, lt::kSmCountTarget, int32_t{kind.multiprocessors});
  // Where a vector lies tells the heuristic how it is aligned (cublasLt.h).
  const auto aligned_to = [](uint32_t alignment) {
    return reinterpret_cast<const void*>(uintptr_t{alignment});
  };
  if (kind.epilogue & lt::kEpilogueBias) {
    set(desc_, lt::kBiasDataType, type_of(kind.operand));
    set(desc_, lt::kBiasPointer, aligned_to(kind.alignment_bias));
  }
  if (kind.epilogue & lt::kEpilogueGeluAux) {
    set(desc_, lt::kEpilogueAuxLd, kind.n);
    set(desc_, lt::kEpilogueAuxPointer, aligned_to(kind.alignment_c));
  }
  const int64_t ldb = kind.transpose_b ? kind.k : kind.n;
  a_ = layout(kind.operand, kind.n, kind.k, kind.transpose_b, ldb);
  b_ = layout(kind.operand, kind.k, kind.m, kind.transpose_a, kind.lda);
  d_ = layout(kind.result, kind.n, kind.m, false, kind.ldc);
}

MatmulPlan::~MatmulPlan() {
  if (d_) lt::library().layout_destroy(d_);
  if (b_) lt::library().layout_destroy(b_);
  if (a_) lt::library().layout_destroy(a_);
  if (desc_) lt::library().desc_destroy(desc_);
}

std::unique_ptr<MatmulPlan> MatmulPlan::make(lt::Handle handle, const MatmulKind& kind,
                                             size_t workspace_limit, int wanted) {
  std::unique_ptr<MatmulPlan> plan(new MatmulPlan(kind));
  return plan->ask(handle, workspace_limit, wanted) ? std::move(plan) : nullptr;
}

// Split-K must not add up in the result itself, which has no fixed order.
bool MatmulPlan::ask(lt::Handle handle, size_t workspace_limit, int wanted) {
  lt::Preference preference = nullptr;
  check(lt::library().preference_create(&preference), "MatmulPreferenceCreate");
  const std::unique_ptr<lt::PreferenceContent, void (*)(lt::Preference)> owner(
      preference, [](lt::Preference p) { lt::library().preference_destroy(p); });
  set(preference, lt::kMaxWorkspaceBytes, workspace_limit);
  // Partial sums in a 16-bit result would be rounded once for each part.
  set(preference, lt::kReductionSchemeMask, uint32_t{lt::kReduceInComputeType});
  set(preference, lt::kMinAlignmentA, kind_.alignment_b);
  set(preference, lt::kMinAlignmentB, kind_.alignment_a);
  set(preference, lt::kMinAlignmentC, kind_.alignment_c);
  set(preference, lt::kMinAlignmentD, kind_.alignment_c);
  int found = 0;
  candidates_.resize(static_cast<size_t>(wanted));
  const lt::Status status = lt::library().heuristic(handle, desc_, a_, b_, d_, d_, preference,
                                                    wanted, candidates_.data(), &found);
  if (status != lt::kSuccess && status != lt::kNotSupported) {
    check_call(fault(), "cublasLtMatmulAlgoGetHeuristic");
  }
  candidates_.resize(status == lt::kSuccess ? static_cast<size_t>(found) : 0);
  std::erase_if(candidates_, [](const auto& each) { return each.state != lt::kSuccess; });
  return !candidates_.empty();
}

lt::Status MatmulPlan::run_candidate(lt::Handle handle, size_t candidate,
                                     const MatmulPointers& pointers, void* workspace,
                                     cudaStream_t stream) {
  if (pointers.bias) set(desc_, lt::kBiasPointer, pointers.bias);
  if (pointers.pre_activation) set(desc_, lt::kEpilogueAuxPointer, pointers.pre_activation);
  const float one = 1, beta = kind_.accumulate ? 1 : 0;
  const lt::HeuristicResult& chosen = candidates_[candidate];
  return lt::library().matmul(handle, desc_, &one, pointers.b, a_, pointers.a, b_, &beta,
                              pointers.c, d_, pointers.c, d_, &chosen.algo, workspace,
                              chosen.workspace_bytes, stream);
}

MatmulPlans::MatmulPlans(const CudaBackend& backend)
    // NVIDIA's advice for cuBLAS: 32 MiB on Hopper, 4 before
    : workspace_limit_(size_t{backend.device().major >= 9 ? 32u : 4u} << 20),
      note_(backend.options().note) {
  check(lt::library().create(&handle_), "Create");
  const std::filesystem::path& folder = backend.options().matmul_choices;
  if (folder.empty()) return;
  choices_ = std::make_unique<MatmulChoices>(
      folder, fmt::format("{}-cublaslt-{}", backend.device().name, lt::library().version()), note_);
}

MatmulPlans::~MatmulPlans() { lt::library().destroy(handle_); }

MatmulPlan* MatmulPlans::find(const Op& op, const MatmulKind& kind) {
  constexpr int kTimed = 8;
  const auto [place, fresh] = plans_.try_emplace(kind);
  if (fresh) {
    place->second = MatmulPlan::make(handle_, kind, workspace_limit_, choices_ ? kTimed : 1);
    if (place->second && choices_) place->second->choose(choose(op, *place->second));
  }
  return place->second.get();
}

size_t MatmulPlans::choose(const Op& op, MatmulPlan& plan) {
  const MatmulKind& kind = plan.kind();
  const size_t known = choices_->find(kind, plan.candidates());
  if (known < plan.candidates().size()) return known;
  const std::optional<size_t> fastest = fastest_candidate(op, handle_, plan);
  if (fastest) return choices_->keep(kind, plan.candidates(), *fastest);
  if (note_) {
    note_(
        fmt::format("[{}] no memory is free to time algorithms, or every algorithm was refused: "
                    "cuBLASLt's first one is taken",
                    op.describe()));
  }
  return 0;
}

}  // namespace fsdp::cuda
