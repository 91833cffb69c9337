// Where cuBLASLt is, its table of functions works; that needs no GPU.
#include <cstdio>
#include <functional>
#include <string>

#include <doctest/doctest.h>

#include "core/error.h"
#include "kernels/cuda/cublaslt.h"

namespace fsdp::cuda {
namespace {

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST_CASE("cuBLASLt describes products without a GPU") {
  const lt::Library* library = nullptr;
  const std::string message = message_of([&] { library = &lt::library(); });
  if (!library) {
    std::printf("[SKIP] cuBLASLt is not there\n");
    CHECK(message.starts_with("[cuBLASLt] the library cannot be opened"));
    return;
  }
  CHECK(library->version() >= 120000);
  lt::MatmulDesc desc = nullptr;
  CHECK(library->desc_create(&desc, lt::kCompute32F, CUDA_R_32F) == lt::kSuccess);
  const int epilogue = lt::kEpilogueBias;
  CHECK(library->desc_set(desc, lt::kEpilogue, &epilogue, sizeof epilogue) == lt::kSuccess);
  CHECK(library->desc_destroy(desc) == lt::kSuccess);
}

}  // namespace
}  // namespace fsdp::cuda
