// Compares kernels/cuda/cublaslt.h with cuBLASLt's own header. Compiled where that is found; there
// is nothing to run.
#include <cublasLt.h>

#include "kernels/cuda/cublaslt.h"
#include "tests/support/same_signature.h"

namespace fsdp::cuda::lt {

static_assert(int{kSuccess} == CUBLAS_STATUS_SUCCESS);
static_assert(int{kExecutionFailed} == CUBLAS_STATUS_EXECUTION_FAILED);
static_assert(int{kNotSupported} == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(int{kCompute32F} == CUBLAS_COMPUTE_32F);
static_assert(int{kCompute32FFastTF32} == CUBLAS_COMPUTE_32F_FAST_TF32);
static_assert(int{kOpN} == CUBLAS_OP_N && int{kOpT} == CUBLAS_OP_T);
static_assert(int{kTransA} == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(int{kTransB} == CUBLASLT_MATMUL_DESC_TRANSB);
static_assert(int{kEpilogue} == CUBLASLT_MATMUL_DESC_EPILOGUE);
static_assert(int{kBiasPointer} == CUBLASLT_MATMUL_DESC_BIAS_POINTER);
static_assert(int{kEpilogueAuxPointer} == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER);
static_assert(int{kEpilogueAuxLd} == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD);
static_assert(int{kSmCountTarget} == CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET);
static_assert(int{kBiasDataType} == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
static_assert(int{kEpilogueDefault} == CUBLASLT_EPILOGUE_DEFAULT);
static_assert(int{kEpilogueBias} == CUBLASLT_EPILOGUE_BIAS);
static_assert(int{kEpilogueGeluAux} == CUBLASLT_EPILOGUE_GELU_AUX);
static_assert(int{kEpilogueGeluAuxBias} == CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
static_assert(int{kMaxWorkspaceBytes} == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(int{kReductionSchemeMask} == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
static_assert(int{kMinAlignmentA} == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
static_assert(int{kMinAlignmentB} == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
static_assert(int{kMinAlignmentC} == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
static_assert(int{kMinAlignmentD} == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
static_assert(int{kReduceInComputeType} == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);

static_assert(sizeof(Algo) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(HeuristicResult) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(HeuristicResult, workspace_bytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(HeuristicResult, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));

template <auto own, typename Theirs>
constexpr bool kSame = test::kSameSignature<decltype(std::declval<Library>().*own), Theirs>;
static_assert(kSame<&Library::version, decltype(&cublasLtGetVersion)>);
static_assert(kSame<&Library::create, decltype(&cublasLtCreate)>);
static_assert(kSame<&Library::destroy, decltype(&cublasLtDestroy)>);
static_assert(kSame<&Library::desc_create, decltype(&cublasLtMatmulDescCreate)>);
static_assert(kSame<&Library::desc_destroy, decltype(&cublasLtMatmulDescDestroy)>);
static_assert(kSame<&Library::desc_set, decltype(&cublasLtMatmulDescSetAttribute)>);
static_assert(kSame<&Library::layout_create, decltype(&cublasLtMatrixLayoutCreate)>);
static_assert(kSame<&Library::layout_destroy, decltype(&cublasLtMatrixLayoutDestroy)>);
static_assert(kSame<&Library::preference_create, decltype(&cublasLtMatmulPreferenceCreate)>);
static_assert(kSame<&Library::preference_destroy, decltype(&cublasLtMatmulPreferenceDestroy)>);
static_assert(kSame<&Library::preference_set, decltype(&cublasLtMatmulPreferenceSetAttribute)>);
static_assert(kSame<&Library::heuristic, decltype(&cublasLtMatmulAlgoGetHeuristic)>);
static_assert(kSame<&Library::matmul, decltype(&cublasLtMatmul)>);

}  // namespace fsdp::cuda::lt
