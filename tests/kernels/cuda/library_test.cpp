// Where cuBLASLt and cuDNN are, their tables of functions work; that needs no GPU.
#include <cstdio>
#include <functional>
#include <string>

#include <doctest/doctest.h>

#include "core/error.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/cudnn_graph.h"

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

TEST_CASE("cuDNN describes tensors without a GPU, and tells what is wrong with them") {
  if (const std::string& missing = dnn::missing(); !missing.empty()) {
    std::printf("[SKIP] cuDNN is not there\n");
    CHECK(missing.starts_with("[cuDNN] the library"));
    CHECK(message_of([] { dnn::library(); }) == missing);
    return;
  }
  dnn::Graph graph;
  graph.memory(1, dnn::kHalf, {2, 3, 5, 8}, dnn::packed_strides({2, 3, 5, 8}));
  const std::string message = message_of([&] {
    graph.memory(2, dnn::kHalf, {2, 3, -1, 8}, {120, 40, 8, 1});
  });
  CHECK(message.starts_with("[cuDNN] "));
}

}  // namespace
}  // namespace fsdp::cuda
