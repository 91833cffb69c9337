// The part of cuDNN that the project calls, its backend API, as a table of functions that is filled
// when the library is opened: at run time, like cuBLASLt, so that the program starts without it and
// is built without its headers. Names and values are those of cudnn_graph.h;
// tests/kernels/cuda/cudnn_header.cpp compares them where that header is found.
// Read next: cudnn_graph.h (graphs and plans of these), cudnn_attention_graph.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <cuda_runtime_api.h>

namespace fsdp::cuda::dnn {

using Handle = struct HandleContent*;
using Descriptor = struct DescriptorContent*;

// Success is 0; those from 3000 to 3999 say that an engine does not do what is asked.
enum Status : int {
  kSuccess = 0,
  kBadParameter = 2000,
  kNotSupported = 3000,
  kExecutionFailed = 5000
};
enum DataType : int {
  kFloat = 0,
  kHalf = 2,
  kInt32 = 4,
  kBFloat16 = 9,
  kBoolean = 11,
};
enum ReductionOperator : int { kReduceAdd = 0, kReduceMax = 3 };
enum PointwiseMode : int {
  kAdd = 0,
  kMultiply = 1,
  kDivide = 6,
  kSubtract = 9,
  kExp = 13,
  kLog = 15,
  kIdentity = 21,
  kCompareGreater = 302,
  kCompareGreaterEqual = 303,
  kGenerateIndex = 501,
  kBinarySelect = 601,
};
enum HeuristicMode : int { kHeuristicA = 3 };
enum NumericalNote : int { kNondeterministic = 4, kNumericalNotes = 10 };  // the latter: how many

enum DescriptorType : int {
  kPointwise = 0,
  kEngine = 2,
  kEngineConfig = 3,
  kEngineHeuristic = 4,
  kExecutionPlan = 5,
  kPointwiseOperation = 13,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
  kMatmul = 18,
  kMatmulOperation = 19,
  kReduction = 21,
  kReductionOperation = 22,
  kReshapeOperation = 31,
  kDeviceProperties = 38,
};

enum AttributeType : int {
  kTypeHandle = 0,
  kTypeDataType = 1,
  kTypeBoolean = 2,
  kTypeInt64 = 3,
  kTypePointer = 6,
  kTypeHeuristicMode = 8,
  kTypeNumericalNote = 11,
  kTypePointwiseMode = 14,
  kTypeDescriptor = 15,
  kTypeReductionOperator = 18,
  kTypeChar = 24,
};

enum Attribute : int {
  kPointwiseModeOf = 0,
  kPointwisePrecision = 1,
  kPointwiseAxis = 9,
  kHeuristicModeOf = 200,
  kHeuristicGraph = 201,
  kHeuristicResults = 202,
  kHeuristicDevice = 204,
  kConfigEngine = 300,
  kConfigWorkspaceBytes = 303,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspaceBytes = 402,
  kPlanDevice = 407,
  kPointwiseDescriptor = 750,
  kPointwiseX = 751,
  kPointwiseB = 752,
  kPointwiseY = 753,
  kPointwiseT = 758,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorDataType = 901,
  kTensorDimensions = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kTensorIsVirtual = 907,
  kTensorIsByValue = 908,
  kPackIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineIndex = 1301,
  kEngineNumericalNote = 1303,
  kMatmulPrecision = 1500,
  kMatmulA = 1520,
  kMatmulB = 1521,
  kMatmulC = 1522,
  kMatmulDescriptor = 1523,
  kReductionOperatorOf = 1600,
  kReductionPrecision = 1601,
  kReductionX = 1610,
  kReductionY = 1611,
  kReductionDescriptor = 1612,
  kReshapeX = 2200,
  kReshapeY = 2201,
  kDeviceJson = 2702,
};

struct Library {
  size_t (*version)();
  size_t (*cudart_version)();  // of the CUDA that it is built for
  const char* (*error_string)(Status);
  void (*last_error)(char* message, size_t room);
  Status (*create)(Handle*);
  Status (*destroy)(Handle);
  Status (*set_stream)(Handle, cudaStream_t);
  Status (*descriptor_create)(DescriptorType, Descriptor*);
  Status (*descriptor_destroy)(Descriptor);
  Status (*descriptor_finalize)(Descriptor);
  Status (*descriptor_set)(Descriptor, Attribute, AttributeType, int64_t count, const void* values);
  Status (*descriptor_get)(const Descriptor, Attribute, AttributeType, int64_t room, int64_t* count,
                           void* values);
  Status (*execute)(Handle, Descriptor plan, Descriptor variant_pack);
};

constexpr size_t kOldest = 91200;  // 9.12: the oldest that the graphs were tried with

// Error when the library is not there or too old: tells where it was looked for.
const Library& library();
// That error's text; empty: it is there.
const std::string& missing();

}  // namespace fsdp::cuda::dnn
