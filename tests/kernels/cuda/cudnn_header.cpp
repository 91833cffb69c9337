// Compares kernels/cuda/cudnn.h with cuDNN's own header. Compiled where that is found; there is
// nothing to run.
#include <cudnn_graph.h>

#include "kernels/cuda/cudnn.h"
#include "tests/support/same_signature.h"

namespace fsdp::cuda::dnn {

static_assert(int{kSuccess} == CUDNN_STATUS_SUCCESS);
static_assert(int{kBadParameter} == CUDNN_STATUS_BAD_PARAM);
static_assert(int{kNotSupported} == CUDNN_STATUS_NOT_SUPPORTED);
static_assert(int{kExecutionFailed} == CUDNN_STATUS_EXECUTION_FAILED);
static_assert(int{kFloat} == CUDNN_DATA_FLOAT);
static_assert(int{kHalf} == CUDNN_DATA_HALF);
static_assert(int{kInt32} == CUDNN_DATA_INT32);
static_assert(int{kBFloat16} == CUDNN_DATA_BFLOAT16);
static_assert(int{kBoolean} == CUDNN_DATA_BOOLEAN);
static_assert(int{kReduceAdd} == CUDNN_REDUCE_TENSOR_ADD);
static_assert(int{kReduceMax} == CUDNN_REDUCE_TENSOR_MAX);
static_assert(int{kAdd} == CUDNN_POINTWISE_ADD);
static_assert(int{kMultiply} == CUDNN_POINTWISE_MUL);
static_assert(int{kDivide} == CUDNN_POINTWISE_DIV);
static_assert(int{kSubtract} == CUDNN_POINTWISE_SUB);
static_assert(int{kExp} == CUDNN_POINTWISE_EXP);
static_assert(int{kLog} == CUDNN_POINTWISE_LOG);
static_assert(int{kIdentity} == CUDNN_POINTWISE_IDENTITY);
static_assert(int{kCompareGreater} == CUDNN_POINTWISE_CMP_GT);
static_assert(int{kCompareGreaterEqual} == CUDNN_POINTWISE_CMP_GE);
static_assert(int{kGenerateIndex} == CUDNN_POINTWISE_GEN_INDEX);
static_assert(int{kBinarySelect} == CUDNN_POINTWISE_BINARY_SELECT);
static_assert(int{kHeuristicA} == CUDNN_HEUR_MODE_A);
static_assert(int{kNondeterministic} == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
static_assert(int{kNumericalNotes} == CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
static_assert(int{kPointwise} == CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
static_assert(int{kEngine} == CUDNN_BACKEND_ENGINE_DESCRIPTOR);
static_assert(int{kEngineConfig} == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
static_assert(int{kEngineHeuristic} == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
static_assert(int{kExecutionPlan} == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
static_assert(int{kPointwiseOperation} == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
static_assert(int{kOperationGraph} == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
static_assert(int{kVariantPack} == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
static_assert(int{kTensor} == CUDNN_BACKEND_TENSOR_DESCRIPTOR);
static_assert(int{kMatmul} == CUDNN_BACKEND_MATMUL_DESCRIPTOR);
static_assert(int{kMatmulOperation} == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
static_assert(int{kReduction} == CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
static_assert(int{kReductionOperation} == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
static_assert(int{kReshapeOperation} == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
static_assert(int{kDeviceProperties} == CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
static_assert(int{kTypeHandle} == CUDNN_TYPE_HANDLE);
static_assert(int{kTypeDataType} == CUDNN_TYPE_DATA_TYPE);
static_assert(int{kTypeBoolean} == CUDNN_TYPE_BOOLEAN);
static_assert(int{kTypeInt64} == CUDNN_TYPE_INT64);
static_assert(int{kTypePointer} == CUDNN_TYPE_VOID_PTR);
static_assert(int{kTypeHeuristicMode} == CUDNN_TYPE_HEUR_MODE);
static_assert(int{kTypeNumericalNote} == CUDNN_TYPE_NUMERICAL_NOTE);
static_assert(int{kTypePointwiseMode} == CUDNN_TYPE_POINTWISE_MODE);
static_assert(int{kTypeDescriptor} == CUDNN_TYPE_BACKEND_DESCRIPTOR);
static_assert(int{kTypeReductionOperator} == CUDNN_TYPE_REDUCTION_OPERATOR_TYPE);
static_assert(int{kTypeChar} == CUDNN_TYPE_CHAR);
static_assert(int{kPointwiseModeOf} == CUDNN_ATTR_POINTWISE_MODE);
static_assert(int{kPointwisePrecision} == CUDNN_ATTR_POINTWISE_MATH_PREC);
static_assert(int{kPointwiseAxis} == CUDNN_ATTR_POINTWISE_AXIS);
static_assert(int{kHeuristicModeOf} == CUDNN_ATTR_ENGINEHEUR_MODE);
static_assert(int{kHeuristicGraph} == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
static_assert(int{kHeuristicResults} == CUDNN_ATTR_ENGINEHEUR_RESULTS);
static_assert(int{kHeuristicDevice} == CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
static_assert(int{kConfigEngine} == CUDNN_ATTR_ENGINECFG_ENGINE);
static_assert(int{kConfigWorkspaceBytes} == CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE);
static_assert(int{kPlanHandle} == CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
static_assert(int{kPlanConfig} == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
static_assert(int{kPlanWorkspaceBytes} == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
static_assert(int{kPlanDevice} == CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
static_assert(int{kPointwiseDescriptor} == CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
static_assert(int{kPointwiseX} == CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
static_assert(int{kPointwiseB} == CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
static_assert(int{kPointwiseY} == CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
static_assert(int{kPointwiseT} == CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
static_assert(int{kGraphHandle} == CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
static_assert(int{kGraphOperations} == CUDNN_ATTR_OPERATIONGRAPH_OPS);
static_assert(int{kTensorAlignment} == CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
static_assert(int{kTensorDataType} == CUDNN_ATTR_TENSOR_DATA_TYPE);
static_assert(int{kTensorDimensions} == CUDNN_ATTR_TENSOR_DIMENSIONS);
static_assert(int{kTensorStrides} == CUDNN_ATTR_TENSOR_STRIDES);
static_assert(int{kTensorId} == CUDNN_ATTR_TENSOR_UNIQUE_ID);
static_assert(int{kTensorIsVirtual} == CUDNN_ATTR_TENSOR_IS_VIRTUAL);
static_assert(int{kTensorIsByValue} == CUDNN_ATTR_TENSOR_IS_BY_VALUE);
static_assert(int{kPackIds} == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
static_assert(int{kPackPointers} == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
static_assert(int{kPackWorkspace} == CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
static_assert(int{kEngineIndex} == CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
static_assert(int{kEngineNumericalNote} == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
static_assert(int{kMatmulPrecision} == CUDNN_ATTR_MATMUL_COMP_TYPE);
static_assert(int{kMatmulA} == CUDNN_ATTR_OPERATION_MATMUL_ADESC);
static_assert(int{kMatmulB} == CUDNN_ATTR_OPERATION_MATMUL_BDESC);
static_assert(int{kMatmulC} == CUDNN_ATTR_OPERATION_MATMUL_CDESC);
static_assert(int{kMatmulDescriptor} == CUDNN_ATTR_OPERATION_MATMUL_DESC);
static_assert(int{kReductionOperatorOf} == CUDNN_ATTR_REDUCTION_OPERATOR);
static_assert(int{kReductionPrecision} == CUDNN_ATTR_REDUCTION_COMP_TYPE);
static_assert(int{kReductionX} == CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
static_assert(int{kReductionY} == CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
static_assert(int{kReductionDescriptor} == CUDNN_ATTR_OPERATION_REDUCTION_DESC);
static_assert(int{kReshapeX} == CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
static_assert(int{kReshapeY} == CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
static_assert(int{kDeviceJson} == CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);

template <auto own, typename Theirs>
constexpr bool kSame = test::kSameSignature<decltype(std::declval<Library>().*own), Theirs>;
static_assert(kSame<&Library::version, decltype(&cudnnGetVersion)>);
static_assert(kSame<&Library::cudart_version, decltype(&cudnnGetCudartVersion)>);
static_assert(kSame<&Library::error_string, decltype(&cudnnGetErrorString)>);
static_assert(kSame<&Library::last_error, decltype(&cudnnGetLastErrorString)>);
static_assert(kSame<&Library::create, decltype(&cudnnCreate)>);
static_assert(kSame<&Library::destroy, decltype(&cudnnDestroy)>);
static_assert(kSame<&Library::set_stream, decltype(&cudnnSetStream)>);
static_assert(kSame<&Library::descriptor_create, decltype(&cudnnBackendCreateDescriptor)>);
static_assert(kSame<&Library::descriptor_destroy, decltype(&cudnnBackendDestroyDescriptor)>);
static_assert(kSame<&Library::descriptor_finalize, decltype(&cudnnBackendFinalize)>);
static_assert(kSame<&Library::descriptor_set, decltype(&cudnnBackendSetAttribute)>);
static_assert(kSame<&Library::descriptor_get, decltype(&cudnnBackendGetAttribute)>);
static_assert(kSame<&Library::execute, decltype(&cudnnBackendExecute)>);

}  // namespace fsdp::cuda::dnn
