// Table lookup and the gradients of both tables on a GPU against the CPU backend.
#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

constexpr int64_t kVocabulary = 23;

std::vector<int32_t> random_tokens(int64_t n, int64_t below) {
  std::vector<int32_t> tokens;
  for (const double value : random_values(n, 9, 0, double(below))) tokens.push_back(int32_t(value));
  return tokens;
}

TEST_CASE("embedding forward, with and without positions") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const int64_t columns : {1, 7, 64, 264}) {
        for (const int64_t shift : {0, 1}) {
          check_against_cpu(gpu, dtype, [&](Backend& backend) {
            const Tensor tokens =
                Tensor::from_host(backend, {3, 5}, random_tokens(15, kVocabulary));
            const auto tensor = [&](Shape shape, uint64_t seed) {
              return shifted_tensor(backend, shape, dtype, random_values(shape.numel(), seed),
                                    shift);
            };
            const Tensor table = tensor({kVocabulary, columns}, 1);
            const Tensor positions = tensor({9, columns}, 2);
            Tensor plain = Tensor::empty(backend, {3, 5, columns}, dtype);
            Tensor added = Tensor::empty(backend, {3, 5, columns}, dtype);
            Stream& stream = backend.compute_stream();
            backend.run(stream, EmbeddingForwardArgs{tokens, table, nullptr, 0, plain});
            backend.run(stream, EmbeddingForwardArgs{tokens, table, &positions, 3, added});
            return std::vector<Values>{plain.to_doubles(), added.to_doubles()};
          });
        }
      }
    }
  });
}

TEST_CASE("embedding backward: runs of every length, all dtypes") {
  // Of the tokens that occur: all one; few, in runs across many chunks; about as many as tokens.
  struct Case {
    int64_t tokens, below, columns, shift;
  };
  constexpr Case kCases[] = {{1, 1, 1, 0},    {33, 1, 8, 0},    {97, 2, 40, 0}, {300, 23, 8, 0},
                             {600, 7, 16, 1}, {1100, 23, 7, 0}, {2, 23, 520, 0}};
  on_gpu([&](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const Case& c : kCases) {
        for (const DType out_type : {DType::kF32, dtype}) {
          const auto run = [&](Backend& backend) {
            const Tensor tokens =
                Tensor::from_host(backend, {1, c.tokens}, random_tokens(c.tokens, c.below));
            const Shape shape = {1, c.tokens, c.columns}, table = {kVocabulary, c.columns};
            const Tensor dy =
                shifted_tensor(backend, shape, dtype, random_values(shape.numel(), 1), c.shift);
            Tensor dtable = Tensor::empty(backend, table, out_type);
            Tensor added = random_tensor(backend, table, out_type, 2);
            Stream& stream = backend.compute_stream();
            backend.run(stream, EmbeddingBackwardArgs{tokens, dy, dtable, false});
            backend.run(stream, EmbeddingBackwardArgs{tokens, dy, added, true});
            return std::vector<Values>{dtable.to_doubles(), added.to_doubles()};
          };
          // Up to 600 terms in f32, in another order.
          check_against_cpu(gpu, dtype, run, dtype == DType::kF32 ? 8 : 1);
        }
      }
    }
  });
}

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

TEST_CASE("position backward: the rows of dy, zero beyond") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const int64_t columns : {1, 7, 40}) {
        for (const int64_t shift : {0, 1}) {
          check_against_cpu(gpu, dtype, [&](Backend& backend) {
            const Shape shape = {5, 6, columns};
            const Tensor dy =
                shifted_tensor(backend, shape, dtype, random_values(shape.numel(), 1), shift);
            Tensor dpositions = Tensor::empty(backend, {9, columns}, dtype);
            Tensor added = random_tensor(backend, {9, columns}, DType::kF32, 2);
            backend.run(backend.compute_stream(), PositionBackwardArgs{dy, dpositions, false});
            backend.run(backend.compute_stream(), PositionBackwardArgs{dy, added, true});
            return std::vector<Values>{dpositions.to_doubles(), added.to_doubles()};
          });
        }
      }
    }
  });
}

}  // namespace
}  // namespace fsdp::test
