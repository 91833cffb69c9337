// The least time a training step could take on this machine at this moment: its matrix products at
// the rate of the matrix-product library on these very shapes, plus its other passes over memory at
// the rate of a plain copy. Both rates are measured here, in slices to be interleaved with the
// steps, because machines are shared and change from one second to the next.
//
// In a slice every product of the step runs once, by itself, as the step calls it: weights and
// weight gradients rotate through memory as they do in a step, activations stay where they are.
// Attention's products are charged at the rate of the others. Collectives are not counted.
// Read next: tools/predict/step_cost.h (what a step consists of).
#pragma once

#include <optional>

#include "core/tensor.h"
#include "core/trace.h"
#include "kernels/cpu/parallel.h"
#include "tools/predict/step_cost.h"

namespace fsdp::tools {

struct SpeedOfLight {
  double flops_per_s = 0;       // of matrix products, in the mixture of the step
  double copy_bytes_per_s = 0;  // read and written
  double flops = 0;             // of a step, with attention's
  double pass_bytes = 0;        // of a step
  // Of the processor's multiply-adds in registers; 0: not measured
  // (kernels/cpu/multiply_add_peak.h).
  double peak_flops_per_s = 0;

  double product_ms() const { return 1e3 * flops / flops_per_s; }
  double pass_ms() const { return 1e3 * pass_bytes / copy_bytes_per_s; }
  double step_ms() const { return product_ms() + pass_ms(); }
  // Of the peak, that a step of so many milliseconds reaches; 0: no peak.
  double percent_of_peak(double ms) const {
    return peak_flops_per_s > 0 ? 100 * flops / (peak_flops_per_s * 1e-3 * ms) : 0;
  }
};

class SpeedOfLightMeter {
 public:
  // `weight_bytes`: of the model, as the products read them. Takes up to 600 MiB: measure the
  // step's memory before. `cpu_threads`, of which the peak is measured; 0: of none.
  SpeedOfLightMeter(Backend& backend, StepCost cost, size_t weight_bytes, int cpu_threads);
  SpeedOfLight measure();  // one slice: a few percent of a step's time; waits

 private:
  // Rotates through one block of memory.
  struct Arena {
    Tensor memory;
    size_t next = 0;

    Arena() = default;
    Arena(Backend& backend, size_t bytes);
    Tensor take(Shape shape, DType dtype);
  };

  void enqueue(const MatmulExtents& e);
  double peak();  // FLOP/s; 0: not measured

  Backend& backend_;
  StepCost cost_;
  Tensor first_operand_, second_operand_, result_;  // activations
  Arena weights_;
  Arena gradients_;
  std::optional<cpu::ThreadTeam> team_;
};

// The highest rates of several slices: what the fastest step is held against. And the medians.
SpeedOfLight highest(const std::vector<SpeedOfLight>& slices);
SpeedOfLight median(const std::vector<SpeedOfLight>& slices);

}  // namespace fsdp::tools
