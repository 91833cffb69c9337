// The phases of a run, one after the other.
#include "tools/predict/meta_run.h"

#include <algorithm>

#include "comm/meta_transport.h"
#include "models/input_rules.h"
#include "tools/data/sampler.h"
#include "tools/engine/row_range.h"
#include "tools/launch/backend_choice.h"
#include "tools/predict/machines.h"

namespace fsdp::tools {

Batch synthetic_batch(const models::ModelConfig& model, int64_t rows, int64_t length, int rank,
                      int ranks, int64_t rows_per_pass, bool masked) {
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
    own.tokens.push_back(std::max(rules.padding, 0));
    own.tokens.resize((row + 1) * static_cast<size_t>(length), 0);
  }
  own.labels = own.tokens;
  if (masked) own.mask.assign(own.tokens.size(), 1);
  Batch batch = make_batch(std::move(own), rules, rows * rules.targets_of_row(length));
  if (rows_per_pass > 0) {
    batch.rows_per_pass = rows_per_pass;
    batch.passes = (rows + rows_per_pass - 1) / rows_per_pass;
  }
  return batch;
}

MetaRun::MetaRun(PlacedOptions options, int ranks, int rank, std::shared_ptr<CallRates> rates)
    : rates_(rates ? std::move(rates) : std::make_shared<CallRates>(machine_rates(kUsualMachine))),
      on_gpu_(options.backend.cuda.has_value()),
      world_(comm::make_meta_world(
          ranks, rank, [this](Stream& stream, const comm::MetaCollective& collective) {
            const double seconds = timing_ ? rates_->collective_seconds(collective) : 0;
            backend().occupy(stream, name_of(collective.kind), collective.bytes, seconds);
          })) {
  meta::MetaOptions meta = options.backend.meta.value_or(meta::MetaOptions{});
  meta.predicts_workspace = meta.host_reaches_memory = !options.backend.cuda;
  meta.bounds_workspace = options.backend.cuda.has_value();
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

std::vector<meta::MetaBackend*> MetaRun::backends() {
  std::vector<meta::MetaBackend*> out = {&backend()};
  for (Backend* other : {session_->host(), session_->file()}) {
    if (other) out.push_back(&dynamic_cast<meta::MetaBackend&>(*other));
  }
  return out;
}

void MetaRun::note(const meta::MetaCall& call) {
  if (call.name == "allocate") {
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

constexpr int kStepsAlike = 2;  // that find the gaps between blocks as they were

}  // namespace

void MetaRun::phase(const std::string& name, const std::function<void(Session&)>& work) {
  MemoryLedger& ledger = session_->backend().ledger();
  Backend *const host = session_->host(), *const file = session_->file();
  if (!done_.empty()) {  // the first one: with what the session's making took
    for (meta::MetaBackend* each : backends()) each->ledger().reset_peak();
  }
  {
    const PhaseScope mark(&marks_, name);
    work(*session_);
  }
  done_.push_back({.name = name,
                   .usage = ledger.usage(),
                   .host = host ? host->ledger().usage() : MemoryUsage{},
                   .file = file ? file->ledger().usage() : MemoryUsage{}});
}

void MetaRun::load(const models::FillFunction& fill, bool from_first_rank) {
  phase("loading", [&](Session& session) {
    from_first_rank ? session.initialise_from_first_rank(fill) : session.initialise(fill);
  });
}

Batch MetaRun::batch_of(int64_t rows, int64_t length, int64_t rows_per_pass) {
  return synthetic_batch(session_->model().config(), rows, length, world_->rank(), world_->size(),
                         rows_per_pass, masked_);
}

void MetaRun::steps(int64_t rows, int64_t length, int64_t count, int64_t most,
                    int64_t rows_per_pass) {
  phase("steps", [&](Session& session) {
    const Batch batch = batch_of(rows, length, rows_per_pass);
    int64_t done = 0;
    const auto step = [&] {
      ++done;
      session.train_step(batch, 0, steps_++).read();
    };
    while (done + 1 < count) step();
    for (int alike = 0; alike < kStepsAlike && done + 1 < most;) {
      const size_t before = needed();
      step();
      alike = needed() == before ? alike + 1 : 0;
    }
    if (count > 0) record_step(batch);
  });
}

// From the moment when all streams are idle until they are again, as steps follow each other when
// the host reads the values of each. With offload the CPU still updates then, beside the next step:
// from one read to the next, after a step that leaves that.
void MetaRun::record_step(const Batch& batch) {
  const bool offloads = session_->sharded().options().host != nullptr;
  const auto step = [&] { session_->train_step(batch, 0, steps_++).read(); };
  calls_.clear();
  step_begin_s_ = backend().finish_all();
  for (meta::MetaBackend* each : backends()) each->set_times(rates_);
  timing_ = true;
  if (offloads) step();
  if (offloads) step_begin_s_ = backend().host_seconds();
  recording_ = true;
  step();
  recording_ = timing_ = false;
  const double end_s = offloads ? backend().host_seconds() : backend().finish_all();
  for (meta::MetaBackend* each : backends()) each->set_times(nullptr);
  backend().finish_all();
  step_ms_ = 1e3 * (end_s - step_begin_s_);
}

void MetaRun::evaluate(int64_t rows, int64_t length, int64_t rows_per_pass) {
  phase("evaluation",
        [&](Session& session) { session.evaluate(batch_of(rows, length, rows_per_pass)); });
}

void MetaRun::other_step(const std::string& name, int64_t rows, int64_t length,
                         int64_t rows_per_pass) {
  phase(name, [&](Session& session) {
    session.train_step(batch_of(rows, length, rows_per_pass), 0, steps_++).read();
  });
}

std::vector<meta::LoggedBlock> MetaRun::blocks_then() const {
  return log_ ? log_->there_after(logged_) : std::vector<meta::LoggedBlock>{};
}

size_t MetaRun::host_needed() const {
  return session_->host() ? session_->host()->ledger().usage().held_peak : 0;
}

size_t MetaRun::file_needed() const {
  return session_->file() ? session_->file()->ledger().usage().held_peak : 0;
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

}  // namespace

MemoryUsage MetaRun::host_usage() const {
  if (!session_->host()) return {};
  MemoryUsage out = session_->host()->ledger().usage();
  for (const PhaseMemory& phase : done_) take_peaks(phase.host, out);
  return out;
}

MemoryUsage MetaRun::file_usage() const {
  if (!session_->file()) return {};
  MemoryUsage out = session_->file()->ledger().usage();
  for (const PhaseMemory& phase : done_) take_peaks(phase.file, out);
  return out;
}

MemoryUsage MetaRun::usage() const {
  MemoryUsage out = session_->backend().ledger().usage();
  for (const PhaseMemory& phase : done_) take_peaks(phase.usage, out);
  out.total_peak = peak_;
  out.at_peak = moment_.memory;
  return out;
}

}  // namespace fsdp::tools
