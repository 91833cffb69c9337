// Writing of metrics.jsonl and metrics.json.
#include "tools/report/metrics.h"

#include <algorithm>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"

namespace fsdp::tools {
namespace {

Json collectives_json(const RunSummary& s) {
  Json out = Json::object();
  for (const auto& [kind, total] : s.collectives) {
    out[kind] = {{"calls", total.calls}, {"bytes", total.bytes}};
  }
  return out;
}

Json stragglers_json(const RunSummary& s) {
  Json out = Json::array();
  for (const comm::Straggler& late : s.stragglers) {
    out.push_back({{"rank", late.rank},
                   {"phase", late.phase},
                   {"late_s", late.late_s},
                   {"steps", late.steps},
                   {"last_in", late.last_in}});
  }
  return out;
}

Json overlap_json(const std::optional<CommunicationOverlap>& overlap) {
  if (!overlap) return {};
  const auto seconds = [](int64_t ns) { return static_cast<double>(ns) / 1e9; };
  Json kinds = Json::object();
  for (const auto& [kind, time] : overlap->by_kind) {
    kinds[kind] = {{"time_s", seconds(time.time_ns)}, {"exposed_s", seconds(time.exposed_ns)}};
  }
  return {{"compute_s", seconds(overlap->compute_ns)},
          {"exposed_s", seconds(overlap->exposed_ns)},
          {"by_kind", kinds}};
}

}  // namespace

MetricsLog::MetricsLog(const std::filesystem::path& path)
    : path_(path), file_(path, std::ios::app) {
  FSDP_CHECK(file_.good(), "{}: cannot be written", path.string());
  std::error_code unknown;
  written_ = std::filesystem::file_size(path, unknown);
}

void MetricsLog::append(const std::string& line) {
  if (path_.empty()) return;
  pending_ += line + "\n";
  retry();
}

void MetricsLog::retry() {
  if (pending_.empty()) return;
  file_ << pending_ << std::flush;
  if (file_.good()) {
    written_ += pending_.size();
    pending_.clear();
    return;
  }
  // A part of it may be in the file.
  file_.close();
  file_.clear();
  std::error_code ignored;
  std::filesystem::resize_file(path_, written_, ignored);
  file_.open(path_, std::ios::app);
}

std::string MetricsLog::sync() {
  if (path_.empty()) return "";
  retry();
  try {
    sync_file(path_);
  } catch (const Error& error) {
    return error.what();
  }
  return problem();
}

std::string MetricsLog::problem() const {
  const auto lines = std::count(pending_.begin(), pending_.end(), '\n');
  return lines == 0 ? ""
                    : fmt::format("{}: {} line{} cannot be written; is the disk full?",
                                  path_.string(), lines, lines == 1 ? "" : "s");
}

void MetricsLog::step(const StepMetrics& m) {
  append(Json{{"step", m.step},
              {"loss", m.loss},
              {"grad_norm", m.grad_norm},
              {"learning_rate", m.learning_rate},
              {"loss_scale", m.loss_scale},
              {"skipped_steps", m.skipped},
              {"true_tokens", m.true_tokens},
              {"samples", m.samples},
              {"epoch", m.epoch ? Json(*m.epoch) : Json()},
              {"tokens_per_s", m.tokens_per_s},
              {"wall_time_s", m.wall_time_s},
              {"peak_memory_bytes", m.peak_memory_bytes}}
             .dump());
}

void MetricsLog::evaluation(const EvaluationMetrics& m) {
  append(Json{{"step", m.step},
              {"validation_loss", m.loss},
              {"best_validation_loss", m.best_loss},
              {"epoch", m.epoch ? Json(*m.epoch) : Json()},
              {"runtime_s", m.runtime_s},
              {"tokens", m.tokens},
              {"sequences", m.sequences},
              {"batches", m.batches}}
             .dump());
}

namespace {

// Bytes. The total is of what can be predicted: without the transport's staging, for instance.
// Nobody predicts that staging.
Json peaks_json(const MemoryUsage& usage, bool predicted) {
  Json by_category;
  for (size_t i = 0; i < kMemoryCategories; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    if (predicted && category == MemoryCategory::kTransportStaging) continue;
    by_category[std::string(name_of(category))] = usage.peak[i];
  }
  return {{"total", usage.predictable_peak}, {"by_category", by_category}};
}

}  // namespace

void write_summary(const std::filesystem::path& path, const RunSummary& s) {
  const auto optional = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json();
  };
  const double rate = s.step_time_s > 0 ? static_cast<double>(s.true_tokens) / s.step_time_s : 0;
  write_json_file(path, {{"model", s.model},
                         {"parameters", s.parameters},
                         {"strategy", s.strategy},
                         {"dtype", s.dtype},
                         {"world_size", s.world_size},
                         {"threads_per_rank", s.threads_per_rank},
                         {"steps", s.steps},
                         {"skipped_steps", s.skipped},
                         {"interrupted", s.interrupted},
                         {"resumed_from", s.resumed_from},
                         {"weights_hash", s.weights_hash},
                         {"optimizer_hash", s.optimizer_hash},
                         {"best_step", s.best_step ? Json(*s.best_step) : Json()},
                         {"true_tokens", s.true_tokens},
                         {"samples", s.samples},
                         {"epochs", s.epochs},
                         {"wall_time_s", s.wall_time_s},
                         {"step_time_s", s.step_time_s},
                         {"batch_making_s", s.batch_making_s},
                         {"batch_waiting_s", s.batch_waiting_s},
                         {"tokens_per_s", rate},
                         {"tokens_per_s_per_rank", rate / s.world_size},
                         {"train_loss", s.train_loss},
                         {"mean_train_loss", s.mean_loss},
                         {"validation_loss", optional(s.validation_loss)},
                         {"best_validation_loss", optional(s.best_validation_loss)},
                         {"bigram_entropy", optional(s.bigram_entropy)},
                         {"memory",
                          {{"predicted", peaks_json(s.predicted_memory, true)},
                           {"ledger", peaks_json(s.memory, false)}}},
                         {"rss_growth_bytes", s.resident_growth_bytes},
                         {"collectives", collectives_json(s)},
                         {"stragglers", stragglers_json(s)},
                         {"communication", overlap_json(s.overlap)}});
}

}  // namespace fsdp::tools
