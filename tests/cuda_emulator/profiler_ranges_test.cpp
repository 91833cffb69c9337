// Ranges that a profiler is told of: phases, units and operations nest, and every one that begins
// ends, also when an operation throws.
#include "kernels/cuda/profiler_ranges.h"

#include <doctest/doctest.h>

#include "core/layer_args.h"
#include "core/scope.h"
#include "core/trace_phases.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/cuda_emulator/emulator.h"

namespace fsdp::test {
namespace {

using Ranges = std::vector<std::string>;

class Recorded {
 public:
  Recorded() { emulator::record_ranges(true); }
  ~Recorded() { emulator::record_ranges(false); }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;
  // "step 1 ( h.0 ( add ( ) ) )"; "unbalanced" where an end has no begin, or the other way round.
  std::string text() const {
    std::string out;
    int open = 0;
    for (const std::string& name : emulator::recorded_ranges()) {
      open += name.empty() ? -1 : 1;
      if (open < 0) return "unbalanced: " + out;
      out += (out.empty() ? "" : " ") + (name.empty() ? ")" : name + " (");
    }
    return open == 0 ? out : "unbalanced: " + out;
  }
};

TEST_CASE("ranges: a phase, the units in it, their operations") {
  cuda::CudaBackend gpu;
  Stream& stream = gpu.compute_stream();
  const Tensor x = Tensor::zeros(gpu, {4}, DType::kF32);
  Tensor y = Tensor::zeros(gpu, {4}, DType::kF32);
  TracePhases phases(nullptr, nullptr);
  const Recorded recorded;
  {
    const PhaseScope step(&phases, "step 1");
    phases.set_marks(&gpu);  // it has begun
    const PhaseScope forward(&phases, "forward");
    gpu.set_scope("h.0");
    gpu.set_scope("h.0");
    gpu.run(stream, AddArgs{x, x, y});
    {
      const Scope other(gpu, "h.1");
      gpu.fill_zero(stream, y.data(), y.bytes());
    }
    {
      const PhaseScope update(&phases, "optimizer");
      const Scope other(gpu, "h.2");
      gpu.fill_zero(stream, y.data(), y.bytes());
    }
    gpu.run(stream, AddArgs{x, x, y});
    gpu.set_scope("");
    gpu.fill_zero(stream, y.data(), y.bytes());
  }
  CHECK(recorded.text() ==
        "step 1 ( forward ( h.0 ( add ( ) ) h.1 ( fill_zero ( ) ) h.0 ( optimizer ( h.2 ( "
        "fill_zero ( "
        ") ) h.0 ( ) ) add ( ) ) fill_zero ( ) ) )");
}

TEST_CASE("ranges: what an operation throws leaves none open") {
  cuda::CudaBackend gpu;
  TracePhases phases(nullptr, nullptr);
  phases.set_marks(&gpu);
  Tensor wide = Tensor::zeros(gpu, {1, 5}, DType::kF64), loss = wide;
  const Tensor labels = Tensor::from_host<int32_t>(gpu, {1}, {4});
  const Recorded recorded;
  for (const char* step : {"step 1", "step 2"}) {
    const auto fails = [&] {
      const PhaseScope phase(&phases, step);
      gpu.set_scope("head");  // and stays
      gpu.run(gpu.compute_stream(),
              CrossEntropyArgs{.logits = wide, .labels = labels, .loss_sum = loss});
    };
    CHECK_THROWS_AS(fails(), Error);
    CHECK_FALSE(recorded.text().starts_with("unbalanced"));  // the phase has ended with its unit
  }
  gpu.set_scope("");
  CHECK(recorded.text() ==
        "step 1 ( head ( cross_entropy ( ) ) ) step 2 ( head ( cross_entropy ( ) ) )");
}

TEST_CASE("ranges: a unit that nobody leaves ends with its backend") {
  const Recorded recorded;
  {
    cuda::CudaBackend gpu;
    gpu.set_scope("h.0");
  }
  CHECK(recorded.text() == "h.0 ( )");
}

}  // namespace
}  // namespace fsdp::test
