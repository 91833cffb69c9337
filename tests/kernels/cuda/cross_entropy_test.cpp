// Softmax cross-entropy on a GPU against the CPU backend: loss, gradients, labels.
#include <cmath>

#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

struct Case {
  int64_t rows, vocabulary, shift;
  int64_t padding = 0;  // of rows, with what is not a number
};
// Rows that do and do not lie on 16 bytes. A block of the emulated GPU keeps 57,344 logits of f32
// in shared memory, 16,384 more in registers, and reads others twice. A row of 12,272 takes 48 KiB
// of shared memory beside what the reductions have.
constexpr Case kCases[] = {{1, 1, 0},     {5, 7, 0},        {5, 7, 0, 57}, {4, 64, 0},
                           {3, 257, 1},   {3, 257, 0, 2},   {2, 8201, 0},  {2, 8201, 0, 55},
                           {1, 12272, 0}, {1, 60001, 0},    {1, 60000, 0}, {2, 60001, 0, 31},
                           {1, 57344, 0}, {2, 75003, 0, 37}};
// Of bf16 it keeps twice 57,344, and 32,768 more.
constexpr Case kNarrowCases[] = {{1, 1, 0},          {5, 7, 0, 57},  {3, 257, 1},
                                 {1, 120003, 1},     {1, 147456, 0}, {2, 120001, 0, 31},
                                 {2, 150005, 0, 27}, {1, 150005, 0}};

std::vector<int32_t> labels_of(const Case& c) {
  std::vector<int32_t> labels;
  for (int64_t row = 0; row < c.rows; ++row) {
    labels.push_back(row == 1 ? kIgnoreIndex
                              : int32_t((row * 5 + c.vocabulary - 1) % c.vocabulary));
  }
  return labels;
}

TEST_CASE("cross_entropy: loss and gradient, of every gradient dtype, in place too") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const Case& c : kCases) {
        CAPTURE(c.vocabulary);
        check_against_cpu(gpu, dtype, [&](Backend& backend) {
          Stream& stream = backend.compute_stream();
          const Values values = random_values(c.rows * c.vocabulary, 1, -9, 9);
          Tensor logits = padded_tensor(backend, c.vocabulary, c.padding, DType::kF32, values);
          const Shape shape = logits.shape();
          if (c.shift) logits = shifted_tensor(backend, shape, DType::kF32, values, c.shift);
          const int64_t vocabulary = c.padding ? c.vocabulary : 0;
          const Tensor labels = Tensor::from_host(backend, {c.rows}, labels_of(c));
          const Tensor loss_scale = make_tensor(backend, {}, DType::kF32, {8});
          Tensor only = make_tensor(backend, {}, DType::kF32, {0.5}), loss = only;
          loss = make_tensor(backend, {}, DType::kF32, {0.25});
          Tensor dlogits = Tensor::empty(backend, shape, dtype);
          backend.run(
              stream,
              CrossEntropyArgs{
                  .logits = logits, .vocabulary = vocabulary, .labels = labels, .loss_sum = only});
          backend.run(stream, CrossEntropyArgs{.logits = logits,
                                               .vocabulary = vocabulary,
                                               .labels = labels,
                                               .loss_sum = loss,
                                               .dlogits = &dlogits,
                                               .gradient_scale = 0.125,
                                               .loss_scale = &loss_scale});
          std::vector<Values> out = {only.to_doubles(), loss.to_doubles(),
                                     without_padding(dlogits, c.vocabulary)};
          if (dtype == DType::kF32) {
            backend.run(stream, CrossEntropyArgs{.logits = logits,
                                                 .vocabulary = vocabulary,
                                                 .labels = labels,
                                                 .loss_sum = loss,
                                                 .dlogits = &logits,
                                                 .gradient_scale = 3});
            out.push_back(without_padding(logits, c.vocabulary));
          }
          return out;
        });
      }
    }
  });
}

TEST_CASE("cross_entropy: logits of bf16, the gradient in their place") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const Case& c : kNarrowCases) {
      CAPTURE(c.vocabulary);
      check_against_cpu(gpu, DType::kBF16, [&](Backend& backend) {
        const Values values = random_values(c.rows * c.vocabulary, 1, -9, 9);
        Tensor logits = padded_tensor(backend, c.vocabulary, c.padding, DType::kBF16, values);
        if (c.shift) {
          logits = shifted_tensor(backend, logits.shape(), DType::kBF16, values, c.shift);
        }
        const Tensor labels = Tensor::from_host(backend, {c.rows}, labels_of(c));
        const Tensor loss_scale = make_tensor(backend, {}, DType::kF32, {8});
        const auto loss_of = [&](Tensor* dlogits) {
          Tensor loss = make_tensor(backend, {}, DType::kF32, {0.25});
          backend.run(backend.compute_stream(),
                      CrossEntropyArgs{.logits = logits,
                                       .vocabulary = c.padding ? c.vocabulary : 0,
                                       .labels = labels,
                                       .loss_sum = loss,
                                       .dlogits = dlogits,
                                       .gradient_scale = 0.125,
                                       .loss_scale = &loss_scale});
          return loss.to_doubles();
        };
        return std::vector<Values>{loss_of(nullptr), loss_of(&logits),
                                   without_padding(logits, c.vocabulary)};
      });
    }
  });
}

TEST_CASE("cross_entropy of logits that differ by much, or are hidden") {
  on_gpu([](cuda::CudaBackend& gpu) {
    check_against_cpu(gpu, DType::kF32, [&](Backend& backend) {
      const Tensor logits =
          make_tensor(backend, {3, 4}, DType::kF32,
                      {1e4, -1e4, 0, 1e4, -INFINITY, 2, -INFINITY, 2, -3e38, -3e38, 3e38, 0});
      Tensor loss = Tensor::zeros(backend, {}, DType::kF32);
      Tensor dlogits = Tensor::empty(backend, {3, 4}, DType::kF32), from = logits;
      const Tensor labels = Tensor::from_host<int32_t>(backend, {3}, {0, 1, 2});
      backend.run(backend.compute_stream(),
                  CrossEntropyArgs{
                      .logits = from, .labels = labels, .loss_sum = loss, .dlogits = &dlogits});
      return std::vector<Values>{loss.to_doubles(), dlogits.to_doubles()};
    });
  });
}

TEST_CASE("cross_entropy: a label outside of the vocabulary is an error at the next wait") {
  on_gpu([](cuda::CudaBackend&) {
    for (const int32_t bad : {-1, 5, -101}) {
      cuda::CudaBackend gpu;  // an error stays with its stream
      Tensor logits = Tensor::zeros(gpu, {3, 5}, DType::kF32);
      Tensor loss = Tensor::zeros(gpu, {}, DType::kF32);
      const Tensor labels = Tensor::from_host<int32_t>(gpu, {3}, {4, kIgnoreIndex, bad});
      gpu.run(gpu.compute_stream(),
              CrossEntropyArgs{
                  .logits = logits, .labels = labels, .loss_sum = loss, .dlogits = &logits});
      const std::string expected = "[cross_entropy] label: expected in [0, 5) or -100, got " +
                                   std::to_string(bad) + " in row 2";
      CHECK_THROWS_WITH_AS(gpu.synchronize(gpu.compute_stream()),
                           doctest::Contains(expected.c_str()), Error);
    }
  });
}

TEST_CASE("cross_entropy refuses f64, and another gradient beside logits of bf16, by name") {
  on_gpu([](Backend& gpu) {
    Tensor logits = Tensor::zeros(gpu, {1, 5}, DType::kF64), loss = logits;
    const Tensor labels = Tensor::from_host<int32_t>(gpu, {1}, {4});
    CHECK_THROWS_WITH_AS(
        gpu.run(gpu.compute_stream(),
                CrossEntropyArgs{.logits = logits, .labels = labels, .loss_sum = loss}),
        "[cross_entropy] dtype of logits: expected f32 or bf16 on a GPU, got f64", Error);
    Tensor narrow = Tensor::zeros(gpu, {1, 5}, DType::kBF16);
    Tensor wide = Tensor::zeros(gpu, {1, 5}, DType::kF32),
           sum = Tensor::zeros(gpu, {}, DType::kF32);
    CHECK_THROWS_WITH_AS(
        gpu.run(gpu.compute_stream(),
                CrossEntropyArgs{
                    .logits = narrow, .labels = labels, .loss_sum = sum, .dlogits = &wide}),
        "[cross_entropy] dtype of dlogits: expected bf16 beside logits of bf16, got f32", Error);
  });
}

}  // namespace
}  // namespace fsdp::test
