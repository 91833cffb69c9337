// Tokens outside of the table on a GPU. Lookup and gradients: calls_test.cpp.
#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

constexpr int64_t kVocabulary = 23;

TEST_CASE("embedding of a token outside of the table is an error at the next wait") {
  on_gpu([](cuda::CudaBackend&) {
    for (const int32_t bad : {-1, 23, 1 << 30}) {
      cuda::CudaBackend gpu;  // an error stays with its stream
      const Tensor tokens = Tensor::from_host<int32_t>(gpu, {1, 5}, {0, 22, bad, 1, -7});
      const Tensor table = Tensor::zeros(gpu, {kVocabulary, 8}, DType::kF32);
      Tensor y = Tensor::empty(gpu, {1, 5, 8}, DType::kF32);
      Tensor dtable = Tensor::zeros(gpu, {kVocabulary, 8}, DType::kF32);
      gpu.run(gpu.compute_stream(), EmbeddingForwardArgs{tokens, table, nullptr, 0, y});
      gpu.run(gpu.compute_stream(), EmbeddingBackwardArgs{tokens, y, dtable, true});
      const std::string expected =
          "[embedding] token: expected in [0, 23), got " + std::to_string(bad);
      CHECK_THROWS_WITH_AS(gpu.synchronize(gpu.compute_stream()),
                           doctest::Contains(expected.c_str()), Error);
    }
  });
}

}  // namespace
}  // namespace fsdp::test
