// Opens cuBLASLt. The emulator of the tests has its own: tests/cuda_emulator/cublaslt.cpp.
#include "core/dynamic_library.h"
#include "core/error.h"
#include "kernels/cuda/cublaslt.h"

namespace fsdp::cuda::lt {
namespace {

Library open() {
  // FSDP_CUBLAS_LIBRARY: where the build has found it. Else the one of the CUDA that this is built
  // with: another one may lie there too.
  const std::string name = fmt::format("libcublasLt.so.{}", CUDART_VERSION / 1000);
  const DynamicLibrary from("cuBLASLt", {FSDP_CUBLAS_LIBRARY, name.c_str()});
  Library to{};
  from.find(to.version, "cublasLtGetVersion");
  from.find(to.create, "cublasLtCreate");
  from.find(to.destroy, "cublasLtDestroy");
  from.find(to.desc_create, "cublasLtMatmulDescCreate");
  from.find(to.desc_destroy, "cublasLtMatmulDescDestroy");
  from.find(to.desc_set, "cublasLtMatmulDescSetAttribute");
  from.find(to.layout_create, "cublasLtMatrixLayoutCreate");
  from.find(to.layout_destroy, "cublasLtMatrixLayoutDestroy");
  from.find(to.preference_create, "cublasLtMatmulPreferenceCreate");
  from.find(to.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  from.find(to.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  from.find(to.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  from.find(to.matmul, "cublasLtMatmul");
  return to;
}

}  // namespace

const Library& library() {
  static const Library opened = open();
  return opened;
}

}  // namespace fsdp::cuda::lt
