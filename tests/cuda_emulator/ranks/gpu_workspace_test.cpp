// What kernels of kernels/cuda take for their own work, beside the bounds of kernels/meta: never
// more, and of the shapes that fill the device no less than a 64th of the bound.
#include "kernels/meta/gpu_workspace.h"

#include <functional>

#include <doctest/doctest.h>

#include "core/optimizer_rules/list.h"
#include "core/shard_args.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/support/attention_case.h"

namespace fsdp::test {
namespace {

using cuda::CudaBackend;

struct Extents {
  int64_t rows, columns;
};
constexpr Extents kExtents[] = {{1, 1},     {1, 8},     {70, 8},    {65, 33},  {700, 19}, {35, 264},
                                {130, 776}, {40, 1032}, {17, 2056}, {9, 4104}, {3, 8200}};

// What one call takes on an emulated GPU of as many multiprocessors as an H100.
size_t taken(const std::function<size_t(CudaBackend&)>& call, size_t& bound) {
  emulator::Settings settings;
  settings.multiprocessors = 132;
  const emulator::Configured large(settings);
  CudaBackend gpu(cuda::CudaOptions{});
  gpu.ledger().reset_peak();
  bound = call(gpu);
  gpu.synchronize(gpu.compute_stream());
  return gpu.ledger().usage().peak[static_cast<size_t>(MemoryCategory::kWorkspace)];
}

void check_bound(const std::function<size_t(CudaBackend&)>& call) {
  size_t bound = 0;
  const size_t bytes = taken(call, bound);
  CHECK(bytes <= bound);
  CHECK(bytes >= bound / 64);
}

Tensor zeros(CudaBackend& gpu, const Shape& shape, DType dtype = DType::kF32) {
  return Tensor::zeros(gpu, shape, dtype);
}

TEST_CASE("workspace of a GPU: the backward of norms and sums of columns") {
  for (const Extents e : kExtents) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      CAPTURE(e.rows);
      CAPTURE(e.columns);
      CAPTURE(name_of(dtype));
      check_bound([&](CudaBackend& gpu) {
        const Tensor x = zeros(gpu, {e.rows, e.columns}, dtype);
        Tensor out = zeros(gpu, {e.columns}, dtype);
        const SumRowsArgs args = {.x = x, .out = out};
        gpu.run(gpu.compute_stream(), args);
        return meta::gpu_workspace(args);
      });
      check_bound([&](CudaBackend& gpu) {
        const Tensor x = zeros(gpu, {e.rows, e.columns}, dtype);
        Tensor dx = zeros(gpu, {e.rows, e.columns}, dtype), dbias = zeros(gpu, {e.columns}, dtype);
        const ActivationBackwardArgs args = {
            .kind = Activation::kRelu, .x = x, .dy = x, .dx = dx, .dbias = &dbias};
        gpu.run(gpu.compute_stream(), args);
        return meta::gpu_workspace(args);
      });
      check_bound([&](CudaBackend& gpu) {
        const Tensor x = zeros(gpu, {e.rows, e.columns}, dtype);
        const Tensor weight = zeros(gpu, {e.columns}, dtype), rstd = zeros(gpu, {e.rows});
        Tensor dx = zeros(gpu, {e.rows, e.columns}, dtype);
        Tensor dweight = zeros(gpu, {e.columns}, dtype);
        const NormBackwardArgs args = {
            .dy = x, .x = x, .weight = weight, .rstd = rstd, .dx = dx, .dweight = &dweight};
        gpu.run(gpu.compute_stream(), RmsNormBackwardArgs{args});
        return meta::gpu_workspace(args);
      });
    }
  }
}

TEST_CASE("workspace of a GPU: embeddings and the loss") {
  for (const Extents e : kExtents) {
    CAPTURE(e.rows);
    CAPTURE(e.columns);
    check_bound([&](CudaBackend& gpu) {
      const Tensor tokens = zeros(gpu, {e.rows}, DType::kI32);
      const Tensor dy = zeros(gpu, {e.rows, e.columns});
      Tensor table = zeros(gpu, {5, e.columns});
      const EmbeddingBackwardArgs args = {tokens, dy, table, false};
      gpu.run(gpu.compute_stream(), args);
      return meta::gpu_workspace(args);
    });
    check_bound([&](CudaBackend& gpu) {
      const Tensor tokens = zeros(gpu, {e.rows}, DType::kI32), table = zeros(gpu, {5, e.columns});
      Tensor y = zeros(gpu, {e.rows, e.columns});
      const EmbeddingForwardArgs args = {tokens, table, nullptr, 0, y};
      gpu.run(gpu.compute_stream(), args);
      return meta::gpu_workspace(args);
    });
    check_bound([&](CudaBackend& gpu) {
      Tensor logits = zeros(gpu, {e.rows, e.columns}), loss = zeros(gpu, {});
      const Tensor labels = zeros(gpu, {e.rows}, DType::kI32);
      const CrossEntropyArgs args = {.logits = logits, .labels = labels, .loss_sum = loss};
      gpu.run(gpu.compute_stream(), args);
      return meta::gpu_workspace(args);
    });
  }
}

// One piece, and pieces of at most half of it, a third: what the emulated engine takes, and no more
// than the limit and the rounding of an allocation.
TEST_CASE("workspace of a GPU: attention whose dq is added up in any order") {
  for (const Case& c :
       {Case{3, 2, 2, 64, 64, 16}, Case{3, 6, 2, 64, 64, 8}, Case{1, 4, 4, 8, 37, 8, false}}) {
    size_t whole = 0;
    for (const size_t parts : {1, 2, 3}) {
      CAPTURE(c.kv_heads);
      CAPTURE(parts);
      const size_t limit = parts == 1 ? size_t{1} << 30 : whole / parts;
      CudaBackend gpu({.attention = cuda::AttentionChoice::kCudnn,
                       .attention_workspace = limit,
                       .attention_deterministic = false});
      gpu.ledger().reset_peak();
      size_t bound = 0, other = 0;
      run_attention(gpu, c, DType::kBF16, Operands(c, DType::kBF16), [&](const auto& args) {
        bound = meta::any_order_workspace(args, limit);
        AttentionBackwardArgs without = args;
        without.in.dropout.probability = 0.1;
        other = meta::any_order_workspace(without, limit);
      });
      gpu.synchronize(gpu.compute_stream());
      const size_t taken =
          gpu.ledger().usage().peak[static_cast<size_t>(MemoryCategory::kWorkspace)];
      CHECK(taken <= bound);
      CHECK(taken >= (parts == 1 ? bound : bound / 4));
      CHECK(other == 0);
      if (parts == 1) whole = taken;
    }
  }
}

TEST_CASE("workspace of a GPU: tables of many spans and runs") {
  for (const int64_t count : {int64_t{1}, int64_t{40}, int64_t{1000}}) {
    CAPTURE(count);
    std::vector<std::pair<int64_t, int64_t>> spans;
    std::vector<ParameterRun> runs;
    for (int64_t i = 0; i < count; ++i) {
      spans.emplace_back(16 * i, 16 * i + 9);
      runs.push_back({.begin = 16 * i, .end = 16 * i + 9, .name_hash = 1});
    }
    size_t bound = 0;
    CHECK(taken(
              [&](CudaBackend& gpu) {
                const Tensor x = zeros(gpu, {16 * count});
                Tensor out = zeros(gpu, {}, DType::kF64);
                const PowerSumArgs args = {.x = x, .spans = spans, .power = 2, .out = out};
                gpu.run(gpu.compute_stream(), args);
                return meta::gpu_workspace(args);
              },
              bound) <= bound);
    CHECK(taken(
              [&](CudaBackend& gpu) {
                const Tensor x = zeros(gpu, {16 * count});
                Tensor out = zeros(gpu, {16 * count}, DType::kBF16);
                const StochasticRoundArgs args = {.x = x, .out = out, .runs = runs};
                gpu.run(gpu.compute_stream(), args);
                return meta::gpu_workspace(args);
              },
              bound) <= bound);
  }
}

TEST_CASE("workspace of a GPU: an optimizer's step over many segments, of 32 bits and of 16") {
  for (const int64_t count : {int64_t{1}, int64_t{40}, int64_t{1000}}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      CAPTURE(count);
      CAPTURE(name_of(dtype));
      std::vector<ShardSegment> segments;
      for (int64_t i = 0; i < count; ++i) segments.push_back({16 * i, 16 * i + 9, true, 0});
      check_bound([&](CudaBackend& gpu) {
        const Shape shape = {16 * count};
        Tensor master = zeros(gpu, shape, dtype), m = zeros(gpu, shape, dtype),
               v = zeros(gpu, shape, dtype);
        const Tensor grad = zeros(gpu, shape), one = zeros(gpu, {1}, DType::kI32);
        const Tensor rate = zeros(gpu, {}, DType::kF64), scale = zeros(gpu, {});
        const Tensor skip = zeros(gpu, {}, DType::kI32);
        const UpdateArgs<rules::AdamW> args = {.shard = {.master = master,
                                                         .grad = grad,
                                                         .segments = segments,
                                                         .step_counts = one,
                                                         .present = one,
                                                         .learning_rate = rate,
                                                         .gradient_scale = scale,
                                                         .skip = skip,
                                                         .weight_decay = 0.1},
                                               .state = {&m, &v}};
        gpu.run(gpu.compute_stream(), args);
        return meta::gpu_workspace(args.shard);
      });
    }
  }
}

}  // namespace
}  // namespace fsdp::test
