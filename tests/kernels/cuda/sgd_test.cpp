// SGD on a GPU against the CPU backend (which is tested against PyTorch's recorded steps).
#include <optional>

#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

struct Setting {
  DType grad = DType::kF32;
  std::optional<DType> copy;
  int64_t n = 0, offset = 0;
  std::vector<ShardSegment> segments;
  double momentum = 0, dampening = 0;
  bool nesterov = false;
  int32_t skip = 0;
  DType master = DType::kF32;
};

// Three steps; the second parameter has no gradient in the first of them.
std::vector<Values> train(Backend& backend, const Setting& s) {
  Stream& stream = backend.compute_stream();
  const auto tensor = [&](DType dtype, uint64_t seed, double low, double high) {
    return shifted_tensor(backend, {s.n}, dtype, random_values(s.n, seed, low, high), s.offset);
  };
  Tensor master = tensor(s.master, 1, -1, 1), buffer = tensor(DType::kF32, 2, -1, 1);
  Tensor copy = tensor(s.copy.value_or(DType::kF32), 4, -1, 1);
  Tensor step_counts = Tensor::zeros(backend, {2}, DType::kI32);
  const Tensor skip = Tensor::from_host<int32_t>(backend, {}, {s.skip});
  const Tensor rate = make_tensor(backend, {}, DType::kF64, {0.03});
  const Tensor scale = make_tensor(backend, {}, DType::kF32, {0.25});
  for (const int step : {0, 1, 2}) {
    const Tensor present = Tensor::from_host<int32_t>(backend, {2}, {1, step != 0});
    const Tensor grad = tensor(s.grad, 5 + static_cast<uint64_t>(step), -4, 4);
    backend.advance_steps(stream, step_counts, present, skip);
    backend.sgd(stream, {.shard = {.master = master,
                                   .grad = grad,
                                   .copy = s.copy ? &copy : nullptr,
                                   .segments = s.segments,
                                   .step_counts = step_counts,
                                   .present = present,
                                   .learning_rate = rate,
                                   .gradient_scale = scale,
                                   .skip = skip,
                                   .weight_decay = 0.1},
                         .momentum_buffer = s.momentum > 0 ? &buffer : nullptr,
                         .momentum = s.momentum,
                         .dampening = s.dampening,
                         .nesterov = s.nesterov});
  }
  return {master.to_doubles(), buffer.to_doubles(), copy.to_doubles()};
}

void check(cuda::CudaBackend& gpu, const Setting& s) {
  check_against_cpu(gpu, s.copy.value_or(DType::kF32),
                    [&](Backend& backend) { return train(backend, s); });
}

void check_rules(cuda::CudaBackend& gpu, Setting s) {
  check(gpu, s);
  s.momentum = 0.9;
  s.dampening = 0.25;
  check(gpu, s);
  s.dampening = 0;
  s.nesterov = true;
  check(gpu, s);
}

TEST_CASE("sgd of every gradient and copy dtype, aligned and not") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType grad : kGpuTypes) {
      for (const std::optional<DType> copy :
           {std::optional<DType>(), std::optional(DType::kBF16)}) {
        for (const int64_t offset : {0, 1}) {
          check_rules(gpu, {grad, copy, 100, offset, {{0, 57, true, 0}, {57, 100, false, 1}}});
        }
      }
    }
  });
}

TEST_CASE("sgd: segments of every size, out of order, with gaps that stand still") {
  on_gpu([](cuda::CudaBackend& gpu) {
    const std::vector<std::vector<ShardSegment>> all = {
        {},
        {{0, 9001, true, 0}},
        {{3, 3, true, 0}, {5, 6, true, 1}, {8, 4500, false, 0}, {4501, 9000, true, 1}}};
    for (const auto& segments : all) {
      check_rules(gpu, {DType::kBF16, DType::kBF16, 9001, 0, segments});
    }
  });
}

TEST_CASE("sgd: a skipped step changes nothing") {
  on_gpu([](cuda::CudaBackend& gpu) {
    Setting skipped = {DType::kF32, DType::kBF16, 300, 0, {{0, 300, true, 0}}, 0.9};
    skipped.skip = 1;
    const std::vector<Values> after = train(gpu, skipped);
    CHECK(after[0] == rounded(random_values(300, 1, -1, 1), DType::kF32));
    CHECK(after[1] == rounded(random_values(300, 2, -1, 1), DType::kF32));
    CHECK(after[2] == rounded(random_values(300, 4, -1, 1), DType::kBF16));
  });
}

TEST_CASE("sgd refuses f64 by name") {
  on_gpu([](cuda::CudaBackend& gpu) {
    const Setting wide = {.n = 8, .segments = {{0, 8, true, 0}}, .master = DType::kF64};
    CHECK_THROWS_WITH_AS(train(gpu, wide), "[sgd] dtype of master: expected f32 on a GPU, got f64",
                         Error);
  });
}

}  // namespace
}  // namespace fsdp::test
