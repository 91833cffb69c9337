// The emulator's cuBLASLt is as strict as cuBLASLt: [Note: what cuBLASLt supports] of cublaslt.cpp,
// rule by rule. Products that keep to it: tests/kernels/cuda/matmul_test.cpp.
#include <initializer_list>

#include <doctest/doctest.h>

#include "kernels/cuda/cublaslt.h"

namespace fsdp::test {
namespace {

namespace lt = cuda::lt;

// A product of 8 x 16 by 16 x 8, and what a test changes of it.
struct Asked {
  lt::ComputeType compute = lt::kCompute32F;
  cudaDataType scale = CUDA_R_32F, operand = CUDA_R_16BF, other = CUDA_R_16BF;
  cudaDataType result = CUDA_R_16BF;
  int epilogue = lt::kEpilogueDefault;
  cudaDataType bias_type = CUDA_R_16BF;
  uintptr_t bias = 256, aux = 256;  // where they lie
  int64_t aux_ld = 8;
  uint64_t rows = 8;
};

template <typename T>
void set(lt::MatmulDesc desc, lt::DescAttribute attribute, const T& value) {
  CHECK(lt::library().desc_set(desc, attribute, &value, sizeof value) == lt::kSuccess);
}

bool has_algorithm(const Asked& asked) {
  const lt::Library& library = lt::library();
  lt::Handle handle = nullptr;
  lt::MatmulDesc desc = nullptr;
  lt::MatrixLayout a = nullptr, b = nullptr, d = nullptr;
  lt::Preference preference = nullptr;
  library.create(&handle);
  library.desc_create(&desc, asked.compute, asked.scale);
  library.layout_create(&a, asked.operand, asked.rows, 16, static_cast<int64_t>(asked.rows));
  library.layout_create(&b, asked.other, 16, 8, 16);
  library.layout_create(&d, asked.result, asked.rows, 8, static_cast<int64_t>(asked.rows));
  library.preference_create(&preference);
  const uint32_t scheme = lt::kReduceInComputeType;
  library.preference_set(preference, lt::kReductionSchemeMask, &scheme, sizeof scheme);
  set(desc, lt::kEpilogue, asked.epilogue);
  set(desc, lt::kBiasDataType, asked.bias_type);
  set(desc, lt::kBiasPointer, reinterpret_cast<const void*>(asked.bias));
  set(desc, lt::kEpilogueAuxPointer, reinterpret_cast<void*>(asked.aux));
  set(desc, lt::kEpilogueAuxLd, asked.aux_ld);
  lt::HeuristicResult result = {};
  int found = 0;
  const lt::Status status =
      library.heuristic(handle, desc, a, b, d, d, preference, 1, &result, &found);
  CHECK((status == lt::kSuccess) == (found == 1));
  library.preference_destroy(preference);
  for (const lt::MatrixLayout layout : {a, b, d}) library.layout_destroy(layout);
  library.desc_destroy(desc);
  library.destroy(handle);
  return found == 1;
}

TEST_CASE("cuBLASLt's types: operands alike, results of their dtype or f32, TF32 of f32") {
  CHECK(has_algorithm({}));
  CHECK(has_algorithm({.result = CUDA_R_32F}));
  CHECK(!has_algorithm({.result = CUDA_R_16F}));
  CHECK(!has_algorithm({.other = CUDA_R_16F}));
  CHECK(!has_algorithm({.scale = CUDA_R_16F}));
  CHECK(!has_algorithm({.compute = lt::kCompute32FFastTF32}));
  CHECK(has_algorithm({.compute = lt::kCompute32FFastTF32,
                       .operand = CUDA_R_32F,
                       .other = CUDA_R_32F,
                       .result = CUDA_R_32F}));
  CHECK(!has_algorithm({.operand = CUDA_R_32F, .other = CUDA_R_32F}));
}

TEST_CASE("epilogues: a bias of the result's type; of ours alone, vectors at 16 bytes") {
  Asked bias = {.epilogue = lt::kEpilogueBias};
  CHECK(has_algorithm(bias));
  bias.bias = 16;
  CHECK(has_algorithm(bias));
  bias.bias = 8;
  CHECK(!has_algorithm(bias));
  CHECK(!has_algorithm({.result = CUDA_R_32F, .epilogue = lt::kEpilogueBias}));
  CHECK(!has_algorithm({.epilogue = lt::kEpilogueBias, .bias_type = CUDA_R_32F}));
  CHECK(!has_algorithm({.epilogue = lt::kEpilogueBias, .rows = 6}));
  const Asked gelu = {.epilogue = lt::kEpilogueGeluAux};
  CHECK(has_algorithm(gelu));
  CHECK(!has_algorithm({.epilogue = lt::kEpilogueGeluAux, .aux = 8}));
  CHECK(!has_algorithm({.epilogue = lt::kEpilogueGeluAux, .aux_ld = 12}));
  CHECK(!has_algorithm({.epilogue = lt::kEpilogueGeluAux, .aux_ld = 8, .rows = 16}));
  CHECK(!has_algorithm({.operand = CUDA_R_32F,
                        .other = CUDA_R_32F,
                        .result = CUDA_R_32F,
                        .epilogue = lt::kEpilogueGeluAux}));
}

}  // namespace
}  // namespace fsdp::test
