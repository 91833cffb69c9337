// The optimizers' kernels on a GPU against the CPU backend (which is tested against formulas and
// PyTorch's recorded steps).
#include "tests/support/gpu_support.h"
#include "tests/support/shard_case.h"

namespace fsdp::test {
namespace {

void check(cuda::CudaBackend& gpu, const ShardCase& c, const ShardRule& rule) {
  CAPTURE(rule.name);
  check_against_cpu(gpu, c.copy.value_or(DType::kF32), [&](Backend& backend) {
    const ShardValues after = three_steps(backend, c, rule);
    std::vector<Values> all = after.states;
    all.insert(all.end(), {after.master, after.copy, after.counts});
    return all;
  });
}

TEST_CASE("optimizer kernels of every gradient and copy dtype, aligned and not") {
  on_gpu([](cuda::CudaBackend& gpu) {
    ShardCase c = {.n = 100, .segments = {{0, 57, true, 0}, {57, 100, false, 1}}};
    for (const ShardRule& rule : shard_rules()) {
      for (const DType grad : kGpuTypes) {
        for (const std::optional<DType> copy :
             {std::optional<DType>(), std::optional(DType::kF32), std::optional(DType::kBF16),
              std::optional(DType::kF16)}) {
          for (const int64_t offset : {0, 1}) {
            c.grad = grad;
            c.copy = copy;
            c.offset = offset;
            check(gpu, c, rule);
          }
        }
      }
    }
  });
}

TEST_CASE("optimizer kernels: segments of every size, out of order, with gaps that stand still") {
  on_gpu([](cuda::CudaBackend& gpu) {
    const std::vector<std::vector<ShardSegment>> all = {
        {},
        {{0, 1, true, 0}},
        {{0, 9001, true, 0}},
        {{3, 3, true, 0}, {5, 6, true, 1}, {8, 4500, false, 2}, {4501, 9000, true, 1}},
        {{4104, 9001, true, 1}, {7, 4104, false, 0}, {0, 5, true, 1}}};
    for (const ShardRule& rule : shard_rules()) {
      for (const auto& segments : all) {
        check(gpu, {DType::kF32, DType::kBF16, DType::kBF16, 9001, 0, segments}, rule);
      }
    }
  });
}

TEST_CASE("optimizer kernels have the bits of their formulas in f32, each fma written out") {
  const ShardCase c = {.n = 5000, .segments = {{3, 2501, true, 0}, {2504, 4999, false, 1}}};
  on_gpu([&](cuda::CudaBackend& gpu) {
    for (ShardRule rule : shard_rules()) {
      CAPTURE(rule.name);
      const ShardValues kernel = three_steps(gpu, c, rule);
      rule.formula = rule.in_f32;
      CHECK((kernel == three_steps_by_formula(c, rule)));
    }
  });
}

TEST_CASE("optimizer kernels: a step of 16 bits is a wide step, rounded") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const ShardRule& rule : shard_rules()) {
      for (const ShardCase& c : narrow_cases(5000)) {
        CAPTURE(rule.name);
        CAPTURE(name_of(c.master));
        CAPTURE(name_of(c.state_dtype()));
        CHECK((three_steps(gpu, c, rule) == three_steps(gpu, c, rule, true)));
      }
    }
  });
}

TEST_CASE("optimizer kernels: a skipped step changes nothing") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const ShardRule& rule : shard_rules()) {
      CAPTURE(rule.name);
      const ShardCase skipped = {.copy = DType::kBF16,
                                 .n = 300,
                                 .segments = {{0, 200, true, 0}, {200, 300, true, 1}},
                                 .skip = 1};
      CHECK((three_steps(gpu, skipped, rule) == first_values(skipped, rule)));
    }
  });
}

TEST_CASE("optimizer kernels refuse f64 by name") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const ShardRule& rule : shard_rules()) {
      const ShardCase wide = {.master = DType::kF64, .n = 8, .segments = {{0, 8, true, 0}}};
      const std::string wanted =
          "[" + rule.op + "] dtype of master: expected f32 on a GPU, got f64";
      CHECK_THROWS_WITH_AS(three_steps(gpu, wide, rule), wanted.c_str(), Error);
    }
  });
}

}  // namespace
}  // namespace fsdp::test
