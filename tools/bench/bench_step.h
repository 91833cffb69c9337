// Times training steps on random tokens against the speed of light of the same run: forward, mean
// cross-entropy over all tokens, backward, global-norm clip, AdamW; no dropout.
// Read next: tools/bench/speed_of_light.h. Not here: printing (tools/commands/bench.cpp).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/memory_ledger.h"
#include "core/trace.h"
#include "tools/bench/speed_of_light.h"
#include "tools/engine/session.h"
#include "tools/launch/launch.h"
#include "tools/predict/call_rates.h"
#include "tools/train/placed_session.h"

namespace fsdp::tools {

struct StepBenchOptions {
  models::ModelConfig model;
  int64_t batch = 4;  // sequences per step, over all ranks
  int64_t length = 64;
  DType dtype = DType::kF32;  // of compute; master weights and gradient sums are f32
  comm::FsdpOptions fsdp;     // dtypes follow from the one above; micro_steps divide the batch
  RecomputeMode recompute = RecomputeMode::kNone;
  int64_t recompute_every = 1;  // in every k-th block
  int64_t warm_up = 2;          // steps before them, at least 1
  int64_t steps = 10;           // timed
  bool speed_of_light = true;   // measured between the steps
  int64_t traced_steps = 0;     // more steps, kernel by kernel
  bool predict = false;         // between the steps each of their calls by itself: on one rank
  // Called on rank 0 as each step ends; the steps of the warm-up are ..., -1, 0.
  std::function<void(int64_t step, double ms)> step_ended = {};
};

// Peaks of a rank, by place.
struct PlacePeaks {
  size_t device = 0, host = 0, file = 0;  // bytes
  bool operator==(const PlacePeaks&) const = default;
};

// What this rank measured.
struct StepBench {
  std::vector<double> step_ms;       // one per timed step
  std::vector<SpeedOfLight> slices;  // measured between them
  MemoryUsage memory;                // ledger of the device after the warm-up
  // Of the ledgers, without transport staging, and of the same steps without bytes.
  PlacePeaks places, predicted_places;
  size_t process_ledger_peak = 0;  // of all ranks in this process, the host's memory too
  size_t resident_growth = 0;      // peak RSS of this process less its RSS before the model existed
  double first_step_s = 0;         // from the process's start to the end of its first step
  StepValues values;               // of the last step
  // The same step without bytes (tools/predict/meta_run.h), where it was asked for: each call at
  // the median and at the least of its times.
  struct Predicted {
    double median_ms = 0, least_ms = 0;
    std::map<std::string, double> kernels_ms;  // of the compute stream, from the least times
    CallRates::Sources calls;
  };
  std::optional<Predicted> predicted = std::nullopt;
  std::vector<std::vector<TraceEvent>> traces;  // by traced step

  double fastest_ms() const;
  double median_ms() const;
  double tokens_per_s(const StepBenchOptions& options) const;  // all ranks, in the fastest step
};
// The session of the step.
PlacedOptions bench_session(const StepBenchOptions& options, const BackendOptions& backend);
// Error when the batch cannot be dealt out to the ranks and their micro-steps.
void check(const StepBenchOptions& options, int ranks);
StepBench bench_step(const StepBenchOptions& options, RankContext& rank);

// What rank 0 does in a step; what is recomputed counts once.
StepCost step_cost(const StepBenchOptions& options, int ranks);

// ---- What is told of a benchmark of a step: its times beside the speed of light, and its kernels.

// Strict: the fastest step against the highest rates. Beside it, medians against medians.
struct StepFigures {
  double fastest_ms = 0, median_ms = 0, tokens_per_s = 0;
  SpeedOfLight light, median_light;
  double percent = 0, median_percent = 0;
};
StepFigures figures_of(const StepBench& bench, const StepBenchOptions& options);

struct KernelTotal {
  double ms = 0;
  int64_t calls = 0;
  double work = 0;  // bytes, or FLOPs of matrix products and attention; 0: not in the cost table
  std::optional<double> predicted_ms = std::nullopt;  // where the step was predicted
};
using KernelTotals = std::map<std::pair<std::string, std::string>, KernelTotal>;  // (lane, kernel)
// Of the calls of one step; of each kernel the fastest of the traced steps.
KernelTotals kernel_totals(const StepBench& bench, const StepCost& cost);

}  // namespace fsdp::tools
