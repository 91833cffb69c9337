// The part of cuBLASLt that the project calls, as a table of functions that is filled when the
// first matrix product is asked for: the library (half a gigabyte) is opened then and not linked,
// so the program starts without it and is built without its headers. Names and values are those of
// cublasLt.h; tests/kernels/cuda/cublaslt_header.cpp compares them where that header is found.
// Not here: what is multiplied how (matmul.cu).
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>
#include <library_types.h>

namespace fsdp::cuda::lt {

using Handle = struct HandleContent*;
using MatmulDesc = struct MatmulDescContent*;
using MatrixLayout = struct MatrixLayoutContent*;
using Preference = struct PreferenceContent*;

enum Status : int { kSuccess = 0, kExecutionFailed = 13, kNotSupported = 15 };
enum ComputeType : int { kCompute32F = 68, kCompute32FFastTF32 = 77 };
enum Operation : int { kOpN = 0, kOpT = 1 };
enum DescAttribute : int {
  kTransA = 3,
  kTransB = 4,
  kEpilogue = 7,
  kBiasPointer = 8,
  kEpilogueAuxPointer = 11,
  kEpilogueAuxLd = 12,
  kSmCountTarget = 15,
  kBiasDataType = 26,
};
enum Epilogue : int {
  kEpilogueDefault = 1,
  kEpilogueBias = 4,
  kEpilogueGeluAux = 160,
  kEpilogueGeluAuxBias = 164,
};
enum PreferenceAttribute : int {
  kMaxWorkspaceBytes = 1,
  kReductionSchemeMask = 3,
  kMinAlignmentA = 5,
  kMinAlignmentB = 6,
  kMinAlignmentC = 7,
  kMinAlignmentD = 8,
};
enum ReductionScheme : uint32_t { kReduceInComputeType = 2 };

struct Algo {
  uint64_t data[8];
};
struct HeuristicResult {
  Algo algo;
  size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};

struct Library {
  size_t (*version)();
  Status (*create)(Handle*);
  Status (*destroy)(Handle);
  Status (*desc_create)(MatmulDesc*, ComputeType, cudaDataType);
  Status (*desc_destroy)(MatmulDesc);
  Status (*desc_set)(MatmulDesc, DescAttribute, const void*, size_t);
  Status (*layout_create)(MatrixLayout*, cudaDataType, uint64_t rows, uint64_t columns, int64_t ld);
  Status (*layout_destroy)(MatrixLayout);
  Status (*preference_create)(Preference*);
  Status (*preference_destroy)(Preference);
  Status (*preference_set)(Preference, PreferenceAttribute, const void*, size_t);
  Status (*heuristic)(Handle, MatmulDesc, MatrixLayout a, MatrixLayout b, MatrixLayout c,
                      MatrixLayout d, Preference, int wanted, HeuristicResult*, int* found);
  Status (*matmul)(Handle, MatmulDesc, const void* alpha, const void* a, MatrixLayout,
                   const void* b, MatrixLayout, const void* beta, const void* c, MatrixLayout,
                   void* d, MatrixLayout, const Algo*, void* workspace, size_t workspace_bytes,
                   cudaStream_t);
};

// Error when the library is not there: tells where it was looked for.
const Library& library();

}  // namespace fsdp::cuda::lt
