// The phases of a run, one after the other.
#include "tools/predict/meta_run.h"

#include <algorithm>
#include <cstdint>

#include "comm/meta_transport.h"
#include "kernels/meta/gpu_workspace.h"
#include "models/input_rules.h"
#include "tools/data/sampler.h"
#include "tools/engine/batch.h"
#include "tools/launch/backend_choice.h"
#include "tools/predict/machines.h"

namespace fsdp::tools {

Batch synthetic_batch(const models::ModelConfig& model, int64_t rows, int64_t length, int rank,
                      int ranks, int64_t rows_per_pass, const SyntheticRows& kind) {
  const models::InputRules rules = models::input_rules(model);
  LabelledRows own = {.length = length};
  if (rows_per_pass > 0) {
    const data::DistributedSampler in_turn({.items = rows, .batch = rows, .shuffle = false});
    own.samples = in_turn.batch(0, 0, rank, ranks, rows_per_pass);
  } else {
    const RowRange mine = deal_rows(rows, rank, ranks);
    for (int64_t row = 0; row < mine.count; ++row) own.samples.push_back(mine.first + row);
  }
  for (size_t row = 0; row < own.samples.size(); ++row) {
    own.tokens.push_back(kind.document > 0 ? 0 : std::max(rules.padding, 0));
    own.tokens.resize((row + 1) * static_cast<size_t>(length), 0);
  }
  own.labels = own.tokens;
  if (kind.masked) own.mask.assign(own.tokens.size(), 1);
  for (size_t i = 0; kind.document > 0 && i < own.tokens.size(); ++i) {
    const int64_t t = static_cast<int64_t>(i) % length;
    own.first_key.push_back(static_cast<int32_t>(t / kind.document * kind.document));
  }
  Batch batch = make_batch(std::move(own), rules, rows * rules.targets_of_row(length));
  if (rows_per_pass > 0) {
    batch.rows_per_pass = rows_per_pass;
    batch.passes = (rows + rows_per_pass - 1) / rows_per_pass;
  }
  return batch;
}

namespace {

// 0: attention keeps its order. Of a GPU that is not known there is no limit.
size_t any_order_limit(const std::optional<cuda::CudaOptions>& cuda, const CallRates* rates) {
  if (!cuda || cuda->attention_deterministic) return 0;
  if (cuda->attention_workspace > 0) return cuda->attention_workspace;
  const double gib = rates ? rates->rates().device_gib : 0;
  return gib > 0 ? meta::attention_limit(static_cast<size_t>(gib * (int64_t{1} << 30))) : SIZE_MAX;
}

}  // namespace

MetaRun::MetaRun(PlacedOptions options, int ranks, int rank, std::shared_ptr<CallRates> rates)
    : rates_(rates ? rates : std::make_shared<CallRates>(machine_rates(kUsualMachine))),
      on_gpu_(options.backend.cuda.has_value()),
      world_(comm::make_meta_world(
          ranks, rank, [this](Stream& stream, const comm::MetaCollective& collective) {
            const double seconds = timing_ ? rates_->collective_seconds(collective) : 0;
            backend().occupy(stream, name_of(collective.kind), collective.bytes, seconds);
          })) {
  meta::MetaOptions meta = options.backend.meta.value_or(meta::MetaOptions{});
  meta.predicts_workspace = meta.host_reaches_memory = !options.backend.cuda;
  meta.bounds_workspace = options.backend.cuda.has_value();
  meta.any_order_limit = any_order_limit(options.backend.cuda, rates.get());
  meta.cpu_threads = options.backend.cpu.threads;
  meta.fixed_tiles = options.backend.cpu.fixed_tiles;
  options.backend = {.meta = meta};
  const size_t mark = marks_.begin("loading");
  session_ = std::make_unique<Session>(*world_, make_places(*world_, options), options);
  marks_.end(mark);
  session_->set_phases(&marks_);
  for (meta::MetaBackend* each : backends()) {
    each->set_recorder([this](const meta::MetaCall& call) { note(call); });
  }
  log_ = backend().block_log();
  if (log_) logged_ = log_->size();
  peak_ = session_->backend().ledger().usage().total_peak;
  moment_ = {
      .phase = "loading", .unit = "", .memory = session_->backend().ledger().usage().at_peak};
}

MetaRun::~MetaRun() = default;

meta::MetaBackend& MetaRun::backend() {
  return dynamic_cast<meta::MetaBackend&>(session_->backend());
}

std::vector<meta::MetaBackend*> MetaRun::backends() const {
  std::vector<meta::MetaBackend*> out;
  for (Backend* each : {&session_->backend(), session_->host(), session_->file()}) {
    if (each) out.push_back(&dynamic_cast<meta::MetaBackend&>(*each));
  }
  return out;
}

void MetaRun::note(const meta::MetaCall& call) {
  if (call.name == "allocate") {
    if (timing_) return;
    if (most_ > 0 && needed() > most_) {
      throw TooMuchMemory(fmt::format("more than {} bytes are needed", most_));
    }
    return note_peak(call.scope);
  }
  if (!recording_) return;
  const std::string phase = marks_.innermost();
  const bool again = phase == "backward" && session_->tape().recomputing();
  const auto milliseconds = [&](double at_s) { return 1e3 * (at_s - step_begin_s_); };
  StepCall noted = {.name = std::string(call.name),
                    .unit = call.scope,
                    .phase = again ? "recompute" : phase,
                    .bytes = call.bytes,
                    .computes = &call.stream == &session_->backend().compute_stream(),
                    .stream = call.stream.name(),
                    .begin_ms = milliseconds(call.begin_s),
                    .end_ms = milliseconds(call.end_s)};
  if (call.kernel) {
    noted.cost = call.kernel->cost;
    noted.product = call.kernel->product;
  }
  calls_.push_back(std::move(noted));
}

void MetaRun::note_peak(const std::string& unit) {
  const MemoryUsage usage = session_->backend().ledger().usage();
  if (usage.total_current <= peak_) return;
  peak_ = usage.total_current;
  if (log_) logged_ = log_->size();
  moment_ = {.phase = marks_.innermost(), .unit = unit, .memory = usage.current};
}

namespace {

// Peaks of `phase` count in `all`, too.
void take_peaks(const MemoryUsage& phase, MemoryUsage& all) {
  for (size_t i = 0; i < kMemoryCategories; ++i) {
    all.peak[i] = std::max(all.peak[i], phase.peak[i]);
  }
  all.predictable_peak = std::max(all.predictable_peak, phase.predictable_peak);
  all.total_peak = std::max(all.total_peak, phase.total_peak);
}

void take_peaks(const PhaseMemory& phase, PhaseMemory& all) {
  take_peaks(phase.usage, all.usage);
  take_peaks(phase.host, all.host);
  take_peaks(phase.file, all.file);
}

}  // namespace

// What is timed comes after all that is counted.
PhaseMemory MetaRun::there() const {
  if (last_ && !in_phase_) return *last_;
  const auto of = [](Backend* backend) {
    return backend ? backend->ledger().usage() : MemoryUsage{};
  };
  return {.name = "",
          .usage = of(&session_->backend()),
          .host = of(session_->host()),
          .file = of(session_->file())};
}

std::vector<std::array<size_t, 3>> MetaRun::held() const {
  std::vector<std::array<size_t, 3>> out;
  for (meta::MetaBackend* each : backends()) {
    const MemoryUsage usage = each->ledger().usage();
    out.push_back({usage.held_peak, usage.total_current, each->heap_end()});
  }
  return out;
}

bool MetaRun::phase(const std::string& name, const std::function<void(Session&)>& work) {
  const auto before = held();
  if (last_) {  // the first one: with what the session's making took
    for (meta::MetaBackend* each : backends()) each->ledger().reset_peak();
  }
  in_phase_ = true;
  {
    const PhaseScope mark(&marks_, name);
    work(*session_);
  }
  PhaseMemory now = there();
  in_phase_ = false;
  now.name = name;
  last_ = now;
  const auto same = std::find_if(done_.begin(), done_.end(),
                                 [&](const PhaseMemory& phase) { return phase.name == name; });
  if (same == done_.end()) {
    done_.push_back(std::move(now));
  } else {
    take_peaks(*same, now);
    *same = std::move(now);
  }
  return held() == before;
}

void MetaRun::load(const models::FillFunction& fill, bool from_first_rank) {
  phase("loading", [&](Session& session) {
    from_first_rank ? session.initialise_from_first_rank(fill) : session.initialise(fill);
  });
}

// The last few are kept: a large one takes longer to make than a step.
const Batch& MetaRun::batch_of(const data::BatchShape& shape) {
  constexpr size_t kMostKept = 4;
  const std::pair key(shape.rows, shape.length);
  if (const auto found = batches_.find(key); found != batches_.end()) return found->second;
  if (batches_.size() == kMostKept) batches_.clear();
  return batches_[key] = synthetic_batch(session_->model().config(), shape.rows, shape.length,
                                         world_->rank(), world_->size(), rows_per_pass_, kind_);
}

// Rows split evenly over micro-steps: the first of them have one more. The session's have as many
// of both kinds as it takes.
MetaRun::Parts MetaRun::parts_of(const data::BatchShape& shape) const {
  const int64_t own = deal_rows(shape.rows, world_->rank(), world_->size()).count;
  const int64_t few = session_->sharded().options().micro_steps;
  Parts out = {.rows = own / micro_steps_, .longer = own % micro_steps_};
  out.shorter = micro_steps_ - out.longer;
  out.longer_run = std::max(std::min(out.longer, few / 2), few - out.shorter);
  out.shorter_run = few - out.longer_run;
  return out;
}

const Batch& MetaRun::batch_of_step(data::BatchShape shape) {
  if (micro_steps_ > 0) {
    const Parts parts = parts_of(shape);
    const int64_t own = parts.longer_run * (parts.rows + 1) + parts.shorter_run * parts.rows;
    shape.rows = own * world_->size();
  }
  return batch_of(shape);
}

// The time between the last two of a kind is that of all that are left out.
void MetaRun::add_micro_steps(const Parts& parts) {
  std::vector<size_t> begins;  // of their forwards
  bool in_forward = false;
  for (size_t i = 0; i < calls_.size(); ++i) {
    const bool forward = calls_[i].phase == "forward";
    if (forward && !in_forward) begins.push_back(i);
    if (forward || calls_[i].phase == "backward") in_forward = forward;
  }
  const auto add = [&](int64_t end, int64_t more) {
    if (more == 0) return;
    const size_t last = begins.at(static_cast<size_t>(end - 1));
    const size_t alike = begins.at(static_cast<size_t>(end - 2));
    for (size_t i = alike; i < last; ++i) calls_[i].times += more;
    const double ms = static_cast<double>(more) * (calls_[last].begin_ms - calls_[alike].begin_ms);
    for (size_t i = last; i < calls_.size(); ++i) {
      calls_[i].begin_ms += ms;
      calls_[i].end_ms += ms;
    }
    step_ms_ += ms;
  };
  add(parts.longer_run, parts.longer - parts.longer_run);
  add(parts.longer_run + parts.shorter_run, parts.shorter - parts.shorter_run);
}

bool MetaRun::step(const data::BatchShape& shape) {
  return phase("steps", [&](Session& session) {
    session.train_step(batch_of_step(shape), 0, steps_++).read();
  });
}

bool MetaRun::evaluate(const data::BatchShape& shape) {
  return phase("evaluation", [&](Session& session) { session.evaluate(batch_of(shape)); });
}

void MetaRun::steps(int64_t rows, int64_t length, int64_t count) {
  for (int64_t i = 0; i < count; ++i) step({rows, length});
  time_step({rows, length});
}

// From the moment when all streams are idle until they are again, as steps follow each other when
// the host reads the values of each. With offload the CPU still updates then, beside the next step:
// from one read to the next, after `before`, a step that leaves that.
double MetaRun::timed_ms(const std::function<void()>& before, const std::function<void()>& work) {
  step_begin_s_ = backend().finish_all();
  for (meta::MetaBackend* each : backends()) each->set_times(rates_);
  timing_ = true;
  if (before) before();
  if (before) step_begin_s_ = backend().host_seconds();
  work();
  const double end_s = before ? backend().host_seconds() : backend().finish_all();
  timing_ = false;
  for (meta::MetaBackend* each : backends()) each->set_times(nullptr);
  backend().finish_all();
  return 1e3 * (end_s - step_begin_s_);
}

void MetaRun::time_step(const data::BatchShape& shape) {
  const Batch& batch = batch_of_step(shape);
  const PhaseScope mark(&marks_, "steps");
  const auto step = [&] { session_->train_step(batch, 0, steps_++).read(); };
  const bool offloads = session_->sharded().options().host != nullptr;
  calls_.clear();
  step_ms_ = timed_ms(offloads ? std::function<void()>(step) : nullptr, [&] {
    recording_ = true;
    step();
    recording_ = false;
  });
  if (micro_steps_ > 0) add_micro_steps(parts_of(shape));
}

void MetaRun::time_evaluation(const data::BatchShape& shape) {
  const Batch& batch = batch_of(shape);
  evaluation_ms_ = timed_ms(nullptr, [&] { session_->evaluate(batch); });
}

std::vector<meta::LoggedBlock> MetaRun::blocks_then() const {
  return log_ ? log_->there_after(logged_) : std::vector<meta::LoggedBlock>{};
}

MemoryUsage MetaRun::host_usage() const {
  MemoryUsage out = there().host;
  for (const PhaseMemory& phase : done_) take_peaks(phase.host, out);
  return out;
}

MemoryUsage MetaRun::file_usage() const {
  MemoryUsage out = there().file;
  for (const PhaseMemory& phase : done_) take_peaks(phase.file, out);
  return out;
}

MemoryUsage MetaRun::usage() const {
  MemoryUsage out = there().usage;
  for (const PhaseMemory& phase : done_) take_peaks(phase.usage, out);
  out.total_peak = peak_;
  out.at_peak = moment_.memory;
  return out;
}

}  // namespace fsdp::tools
