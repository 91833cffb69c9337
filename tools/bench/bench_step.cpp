// The order of a benchmark: warm-up, memory, then steps and slices of the speed of light in turn.
#include "tools/bench/bench_step.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "kernels/meta/kernel_call.h"
#include "models/weights.h"
#include "tools/bench/statistics.h"
#include "tools/launch/host_load.h"
#include "tools/predict/call_meter.h"
#include "tools/predict/machines.h"
#include "tools/predict/memory_report.h"
#include "tools/predict/meta_run.h"
#include "tools/train/placed_session.h"

namespace fsdp::tools {
namespace {

constexpr uint64_t kSeed = 0;
constexpr double kLearningRate = 1e-4;

Batch random_batch(const StepBenchOptions& options, comm::Communicator& world) {
  const models::InputRules rules = models::input_rules(options.model);
  const int64_t rows = options.batch / world.size();
  LabelledRows own = {.length = options.length};
  const auto vocabulary = static_cast<uint32_t>(options.model.vocabulary);
  for (int64_t i = 0; i < rows * own.length; ++i) {
    const Philox4x32 words =
        philox4x32({static_cast<uint32_t>(i), 0, 0, 0}, {static_cast<uint32_t>(world.rank()), 0});
    auto token = static_cast<int32_t>(words[0] % vocabulary);
    if (rules.is_padding(token)) ++token;  // a text has none: its work is less
    own.tokens.push_back(token % static_cast<int32_t>(vocabulary));
  }
  own.labels = own.tokens;
  for (int64_t i = 0; i < rows; ++i) own.samples.push_back(world.rank() * rows + i);
  Batch batch =
      make_batch(std::move(own), rules, options.batch * rules.targets_of_row(options.length));
  if (options.fsdp.fixed_order) {  // a pass of each micro-step
    const int64_t parts = options.fsdp.micro_steps;
    batch.rows_per_pass = (rows + parts - 1) / parts;
    batch.passes = parts * world.size();
  }
  return batch;
}

// Measures every call of the step by itself, in slices to be interleaved with steps, because
// machines are shared and change from one second to the next.
class StepPredictor {
 public:
  // `folder`: of what is offloaded.
  StepPredictor(const StepBenchOptions& options, Backend& backend, std::string folder)
      : options_(options), folder_(std::move(folder)), meter_(backend) {
    Rates rates = machine_rates(kUsualMachine);
    rates.host_memory_bytes_per_s = 0;  // the host's calls are measured, too
    run(std::move(rates), [&](const meta::KernelCall& call) -> std::optional<double> {
      calls_.push_back({call, {}});
      return std::nullopt;
    });
    measure();  // libraries make their code for every shape
    for (Call& call : calls_) call.seconds.clear();
  }
  void measure() {
    meter_.refill();
    for (Call& each : calls_) {
      if (const auto seconds = meter_.time_once(each.call)) each.seconds.push_back(*seconds);
    }
  }
  StepBench::Predicted predict() {
    StepBench::Predicted out;
    Rates machine = measured_machine(meter_, "this machine");
    if (options_.fsdp.offload == comm::Offload::kNvme) {
      const DiskRates disk = measure_disk(folder_);
      machine.disk_read = disk.read;
      machine.disk_write = disk.write;
    }
    const auto with = [&](double Spread::*choice) {
      const auto known = [&](const meta::KernelCall& call) -> std::optional<double> {
        for (const Call& each : calls_) {
          const bool same = each.call.kernel == call.kernel && each.call.shape == call.shape &&
                            each.call.dtype == call.dtype;
          if (same && !each.seconds.empty()) return spread_of(each.seconds).*choice;
        }
        return std::nullopt;
      };
      return run(machine, known);
    };
    const Run least = with(&Spread::least), median = with(&Spread::median);
    out.least_ms = least.step_ms;
    out.median_ms = median.step_ms;
    out.kernels_ms = least.kernels_ms;
    out.calls = median.calls;
    return out;
  }

 private:
  struct Call {
    meta::KernelCall call;
    std::vector<double> seconds;
  };
  struct Run {
    double step_ms = 0;
    std::map<std::string, double> kernels_ms;
    CallRates::Sources calls;
  };
  Run run(Rates rates, const MeasureCall& measure) const {
    const auto asked = std::make_shared<CallRates>(std::move(rates), measure);
    MetaRun run(bench_session(options_, {}), /*ranks=*/1, /*rank=*/0, asked);
    run.load(models::from_scratch(kSeed));
    run.steps(options_.batch, options_.length);
    Run out = {.step_ms = run.step_ms(), .kernels_ms = {}, .calls = asked->distinct_calls()};
    for (const StepCall& call : run.last_step()) {
      if (call.computes) out.kernels_ms[call.name] += call.end_ms - call.begin_ms;
    }
    return out;
  }

  const StepBenchOptions& options_;
  const std::string folder_;
  CallMeter meter_;
  std::vector<Call> calls_;
};

class StepBenchmark {
 public:
  StepBenchmark(const StepBenchOptions& options, RankContext& rank)
      : options_(options), rank_(rank), batch_(random_batch(options, rank.world)) {}

  StepBench run() {
    rank_.world.barrier();  // ranks of one process: nobody has made anything yet
    const size_t resident_before = process_memory().resident;
    rank_.world.barrier();
    const PlacedOptions placed = bench_session(options_, rank_.backend);
    session_ = std::make_unique<Session>(rank_.world, make_places(rank_.world, placed), placed);
    return with_session(rank_, [&] { return measure(resident_before); });
  }

 private:
  StepBench measure(size_t resident_before) {
    session_->initialise(models::from_scratch(kSeed));
    for (Backend* place : {&session_->backend(), session_->host(), session_->file()}) {
      if (place) place->ledger().reset_peak();
    }
    for (int64_t i = 0; i < options_.warm_up; ++i) tell(i + 1 - options_.warm_up, step());
    read_memory(resident_before);
    std::optional<SpeedOfLightMeter> meter;
    if (options_.speed_of_light) {
      meter.emplace(session_->backend(), step_cost(options_, rank_.world.size()),
                    static_cast<size_t>(options_.model.parameter_count()) * size_of(options_.dtype),
                    rank_.backend.cuda ? 0 : rank_.backend.cpu.threads);
    }
    std::optional<StepPredictor> predictor;
    if (options_.predict) {
      predictor.emplace(options_, session_->backend(), rank_.backend.offload_folder);
    }
    for (int64_t i = 0; i < options_.steps; ++i) {
      result_.step_ms.push_back(step());
      tell(i + 1, result_.step_ms.back());
      rank_.world.barrier();
      if (meter) result_.slices.push_back(meter->measure());
      if (predictor) predictor->measure();
    }
    if (predictor) result_.predicted = predictor->predict();
    for (int64_t i = 0; i < options_.traced_steps; ++i) trace_step();
    return std::move(result_);
  }

  // Milliseconds, all ranks starting together.
  double step() {
    rank_.world.barrier();
    const auto start = std::chrono::steady_clock::now();
    result_.values = session_->train_step(batch_, kLearningRate, steps_done_++).read();
    const std::chrono::duration<double, std::milli> passed =
        std::chrono::steady_clock::now() - start;
    return passed.count();
  }

  void tell(int64_t step, double ms) {
    if (result_.first_step_s == 0) result_.first_step_s = process_age_s();
    if (options_.step_ended && rank_.world.rank() == 0) options_.step_ended(step, ms);
  }

  void read_memory(size_t resident_before) {
    rank_.world.barrier();
    const ProcessMemory process = process_memory();
    result_.resident_growth =
        process.peak_resident - std::min(process.peak_resident, resident_before);
    result_.memory = session_->backend().ledger().usage();
    result_.process_ledger_peak = session_->peak_memory() * static_cast<size_t>(rank_.local_ranks);
    const auto peak_of = [](Backend* place) {
      return place ? counted(place->ledger().usage()) : 0;
    };
    result_.places = {.device = peak_of(&session_->backend()),
                      .host = peak_of(session_->host()),
                      .file = peak_of(session_->file())};
    result_.predicted_places = predict_places();
    rank_.world.barrier();
  }

  // The transport's own memory is not predicted. It is there before a step, and stays.
  static size_t counted(const MemoryUsage& usage) {
    return usage.total_peak - usage.at_peak[static_cast<size_t>(MemoryCategory::kTransportStaging)];
  }

  PlacePeaks predict_places() const {
    MetaRun run(bench_session(options_, rank_.backend), rank_.world.size(), rank_.world.rank());
    run.load(models::from_scratch(kSeed));
    run.set_rows_per_pass(batch_.rows_per_pass);
    run.steps(options_.batch, options_.length, options_.warm_up);
    const PhaseMemory& steps = run.phases().back();
    return {
        .device = counted(steps.usage), .host = counted(steps.host), .file = counted(steps.file)};
  }

  void trace_step() {
    Trace trace;
    session_->set_trace(&trace);
    step();
    session_->set_trace(nullptr);
    rank_.world.barrier();
    result_.traces.push_back(trace.events());
  }

  const StepBenchOptions& options_;
  RankContext& rank_;
  Batch batch_;
  std::unique_ptr<Session> session_;
  StepBench result_;
  uint32_t steps_done_ = 0;
};

}  // namespace

PlacedOptions bench_session(const StepBenchOptions& options, const BackendOptions& backend) {
  PlacedOptions session;
  session.model = options.model;
  session.split_root = !options.model.tied_head;  // as in training
  session.max_length = options.length;
  session.fsdp = options.fsdp;
  session.recompute = options.recompute;
  session.recompute_every = options.recompute_every;
  if (options.fsdp.update_in_backward) session.clip_norm = 0;
  session.fsdp.param_dtype = options.dtype;
  session.fsdp.reduce_dtype = accumulation_dtype(options.dtype);
  session.backend = backend;
  session.backend.cpu.fixed_tiles = options.fsdp.fixed_order;  // the same
  return session;
}

double StepBench::fastest_ms() const { return *std::min_element(step_ms.begin(), step_ms.end()); }

double StepBench::median_ms() const {
  std::vector<double> sorted = step_ms;
  std::sort(sorted.begin(), sorted.end());
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

double StepBench::tokens_per_s(const StepBenchOptions& options) const {
  return 1e3 * static_cast<double>(options.batch * options.length) / fastest_ms();
}

StepCost step_cost(const StepBenchOptions& options, int ranks) {
  PlacedOptions session = bench_session(options, {});
  session.recompute = RecomputeMode::kNone;
  MetaRun run(session, ranks);
  run.load(models::from_scratch(kSeed));
  run.steps(options.batch, options.length);
  return step_cost(run.last_step());
}

void check(const StepBenchOptions& options, int ranks) {
  const int64_t passes = int64_t{ranks} * options.fsdp.micro_steps;
  FSDP_CHECK(options.batch >= passes && options.batch % passes == 0,
             "bench step: --batch: expected a multiple of {} rank{} x {} micro-step{}, got {}",
             ranks, ranks == 1 ? "" : "s", options.fsdp.micro_steps,
             options.fsdp.micro_steps == 1 ? "" : "s", options.batch);
  FSDP_CHECK(
      !options.predict || ranks == 1,
      "bench step: --predict: expected one rank, got {}: links between ranks are not measured",
      ranks);
  const bool learned = options.model.positions == models::PositionKind::kLearned;
  FSDP_CHECK(options.length >= 2 && (!learned || options.length <= options.model.max_positions),
             "bench step: --seq: expected within [2, {}], got {}", options.model.max_positions,
             options.length);
}

StepBench bench_step(const StepBenchOptions& options, RankContext& rank) {
  return StepBenchmark(options, rank).run();
}
namespace {

KernelTotals totals_of_step(const std::vector<TraceEvent>& events) {
  KernelTotals totals;
  for (const TraceEvent& event : events) {
    KernelTotal& total = totals[{event.lane, event.name}];
    total.ms += static_cast<double>(event.end_ns - event.begin_ns) * 1e-6;
    ++total.calls;
  }
  return totals;
}

}  // namespace

StepFigures figures_of(const StepBench& bench, const StepBenchOptions& options) {
  StepFigures f = {.fastest_ms = bench.fastest_ms(),
                   .median_ms = bench.median_ms(),
                   .tokens_per_s = bench.tokens_per_s(options),
                   .light = highest(bench.slices),
                   .median_light = median(bench.slices)};
  f.percent = 100 * f.light.step_ms() / f.fastest_ms;
  f.median_percent = 100 * f.median_light.step_ms() / f.median_ms;
  return f;
}

KernelTotals kernel_totals(const StepBench& bench, const StepCost& cost) {
  KernelTotals totals = totals_of_step(bench.traces.at(0));
  for (const std::vector<TraceEvent>& events : bench.traces) {
    for (const auto& [key, total] : totals_of_step(events)) {
      totals[key].ms = std::min(totals[key].ms, total.ms);
    }
  }
  const auto add_work = [&](const std::string& kernel, int64_t work) {
    const auto found = totals.find({"compute", kernel});
    if (found != totals.end()) found->second.work = static_cast<double>(work);
  };
  for (const StepPass& pass : cost.passes) add_work(pass.kernel, pass.cost.bytes);
  for (const StepPass& pass : cost.attention) add_work(pass.kernel, pass.cost.flops);
  add_work("matmul", cost.product_flops());
  if (bench.predicted) {
    for (auto& [key, total] : totals) {
      const auto predicted = bench.predicted->kernels_ms.find(key.second);
      if (key.first == "compute" && predicted != bench.predicted->kernels_ms.end()) {
        total.predicted_ms = predicted->second;
      }
    }
  }
  return totals;
}

}  // namespace fsdp::tools
