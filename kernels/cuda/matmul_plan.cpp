// Descriptors and the choice of the algorithm: the first that the heuristic names, among those that
// give the same bits every time. See [Note: rows and columns] in the header.
#include "kernels/cuda/matmul_plan.h"

namespace fsdp::cuda {
namespace {

void check(lt::Status status, const char* call) {
  FSDP_CHECK(status == lt::kSuccess, "[matmul] {}: status {} of cuBLASLt", call,
             static_cast<int>(status));
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

// A matrix of rows x columns, or stored transposed.
lt::MatrixLayout layout(DType dtype, int64_t rows, int64_t columns, bool transposed) {
  if (transposed) std::swap(rows, columns);
  lt::MatrixLayout made = nullptr;
  check(lt::library().layout_create(&made, type_of(dtype), static_cast<uint64_t>(rows),
                                    static_cast<uint64_t>(columns), rows),
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
  if (kind.epilogue & lt::kEpilogueBias) set(desc_, lt::kBiasDataType, type_of(kind.operand));
  if (kind.epilogue & lt::kEpilogueGeluAux) set(desc_, lt::kEpilogueAuxLd, kind.n);
  a_ = layout(kind.operand, kind.n, kind.k, kind.transpose_b);
  b_ = layout(kind.operand, kind.k, kind.m, kind.transpose_a);
  d_ = layout(kind.result, kind.n, kind.m, false);
}

MatmulPlan::~MatmulPlan() {
  if (d_) lt::library().layout_destroy(d_);
  if (b_) lt::library().layout_destroy(b_);
  if (a_) lt::library().layout_destroy(a_);
  if (desc_) lt::library().desc_destroy(desc_);
}

std::unique_ptr<MatmulPlan> MatmulPlan::make(lt::Handle handle, const MatmulKind& kind,
                                             size_t workspace_limit) {
  std::unique_ptr<MatmulPlan> plan(new MatmulPlan(kind));
  return plan->choose(handle, workspace_limit) ? std::move(plan) : nullptr;
}

// Not timed: a choice by time may differ between runs, and with it the bits. Split-K must not add
// up in the result itself, which has no fixed order.
bool MatmulPlan::choose(lt::Handle handle, size_t workspace_limit) {
  lt::Preference preference = nullptr;
  check(lt::library().preference_create(&preference), "MatmulPreferenceCreate");
  const std::unique_ptr<lt::PreferenceContent, void (*)(lt::Preference)> owner(
      preference, [](lt::Preference p) { lt::library().preference_destroy(p); });
  set(preference, lt::kMaxWorkspaceBytes, workspace_limit);
  set(preference, lt::kReductionSchemeMask,
      uint32_t{lt::kReduceInComputeType | lt::kReduceInOutputType});
  set(preference, lt::kMinAlignmentA, kind_.alignment_b);
  set(preference, lt::kMinAlignmentB, kind_.alignment_a);
  set(preference, lt::kMinAlignmentC, kind_.alignment_c);
  set(preference, lt::kMinAlignmentD, kind_.alignment_c);
  int found = 0;
  const lt::Status status =
      lt::library().heuristic(handle, desc_, a_, b_, d_, d_, preference, 1, &chosen_, &found);
  return status == lt::kSuccess && found == 1 && chosen_.state == lt::kSuccess;
}

lt::Status MatmulPlan::run(lt::Handle handle, const MatmulPointers& pointers, void* workspace,
                           cudaStream_t stream) {
  if (pointers.bias) set(desc_, lt::kBiasPointer, pointers.bias);
  if (pointers.pre_activation) set(desc_, lt::kEpilogueAuxPointer, pointers.pre_activation);
  const float one = 1, beta = kind_.accumulate ? 1 : 0;
  return lt::library().matmul(handle, desc_, &one, pointers.b, a_, pointers.a, b_, &beta,
                              pointers.c, d_, pointers.c, d_, &chosen_.algo, workspace,
                              chosen_.workspace_bytes, stream);
}

MatmulPlans::MatmulPlans(size_t workspace_limit) : workspace_limit_(workspace_limit) {
  check(lt::library().create(&handle_), "Create");
}

MatmulPlan* MatmulPlans::find(const MatmulKind& kind) {
  const auto [place, fresh] = plans_.try_emplace(kind);
  if (fresh) place->second = MatmulPlan::make(handle_, kind, workspace_limit_);
  return place->second.get();
}

}  // namespace fsdp::cuda
