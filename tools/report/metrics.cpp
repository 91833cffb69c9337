// Writing of metrics.jsonl and metrics.json.
#include "tools/report/metrics.h"

#include <cmath>
#include <map>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/text/numbers.h"

namespace fsdp::tools {
namespace {

template <typename T>
Json json_of(const T& value) {
  return value;
}
Json json_of(const BatchRanges& ranges) { return ranges_json(ranges); }
Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json collectives_json(const RunSummary& s) {
  Json out = Json::object();
  for (const auto& [kind, total] : s.collectives) {
    out[kind] = {{"calls", total.calls}, {"bytes", total.bytes}};
  }
  return out;
}

// In the order of their first ranks.
Json hosts_json(const RunSummary& s) {
  std::vector<std::string> names;
  std::map<std::string, Json> ranks;
  int64_t rank = 0;
  for (const std::string& host : s.hosts) {
    if (ranks.try_emplace(host, Json::array()).second) names.push_back(host);
    ranks[host].push_back(rank++);
  }
  Json out = Json::array();
  for (const std::string& host : names) out.push_back({{"host", host}, {"ranks", ranks[host]}});
  return out;
}

Json straggler_json(const RunSummary& s, const comm::Straggler& late) {
  const auto rank = static_cast<size_t>(late.rank);
  return {{"host", rank < s.hosts.size() ? Json(s.hosts[rank]) : Json()},
          {"phase", late.phase},
          {"late_s", late.late_s},
          {"steps", late.steps},
          {"last_in", late.last_in}};
}

Json stragglers_json(const RunSummary& s) {
  Json out = Json::array();
  for (const comm::Straggler& late : s.stragglers) {
    Json each = {{"rank", late.rank}};
    each.update(straggler_json(s, late));
    out.push_back(each);
  }
  return out;
}

Json late_hosts_json(const RunSummary& s) {
  Json out = Json::array();
  for (const comm::Straggler& late : s.late_hosts) out.push_back(straggler_json(s, late));
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

void MetricsLog::step(const StepMetrics& m) {
  const Json line = {{"step", m.totals.steps},
                     {"loss", m.loss},
                     {"grad_norm", m.grad_norm},
                     {"learning_rate", m.learning_rate},
                     {"loss_scale", m.loss_scale},
                     {"skipped_steps", m.totals.skipped},
                     {"true_tokens", m.totals.true_tokens},
                     {"samples", m.totals.samples},
                     {"epoch", json_of(m.epoch)},
                     {"tokens_per_s", m.tokens_per_s},
                     {"wall_time_s", m.totals.wall_time_s},
                     {"peak_memory_bytes", m.peak_memory_bytes}};
  log_.append(line.dump());
}

std::string nonfinite_validation(const TrainTotals& totals) {
  const std::optional<double>& loss = totals.validation_loss;
  if (!loss || std::isfinite(*loss)) return "";
  return fmt::format("step {}: the validation loss is {}", totals.validated_at,
                     format_value(*loss));
}

void MetricsLog::evaluation(const EvaluationMetrics& m) {
  const Json line = {{"step", m.step},
                     {"validation_loss", m.loss},
                     {"best_validation_loss", m.best_loss},
                     {"epoch", json_of(m.epoch)},
                     {"runtime_s", m.runtime_s},
                     {"tokens", m.tokens},
                     {"sequences", m.sequences},
                     {"batches", m.batches}};
  log_.append(line.dump());
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
  return {
      {"total", usage.predictable_peak}, {"in_all", usage.held_peak}, {"by_category", by_category}};
}

}  // namespace

Json callback_metrics(const RunSummary& s) {
  Json out = {{"train/steps_per_second", s.totals.last_steps_per_s},
              {"train/samples_per_second", s.totals.last_samples_per_s}};
  if (s.totals.step_time_s > 0) {
    out["train/steps_per_second_mean"] = static_cast<double>(s.totals.steps) / s.totals.step_time_s;
    out["train/samples_per_second_mean"] =
        static_cast<double>(s.totals.samples) / s.totals.step_time_s;
  }
  const auto add = [&](Quantity quantity, const char* mean, const char* deviation) {
    const std::optional<Moments> moments = s.samples_of_load.moments(quantity);
    if (!moments) return;
    out[mean] = moments->mean;
    if (deviation) out[deviation] = moments->deviation;
  };
  add(kCpu, "avg_cpu_util_%", "std_cpu_util_%");
  add(kRamUsed, "avg_ram_used_MB", nullptr);
  add(kGpu, "avg_gpu_util_%", "std_gpu_util_%");
  add(kGpuAllocated, "avg_mem_alloc_MB", nullptr);
  add(kGpuReserved, "avg_mem_reserved_MB", nullptr);
  add(kGpuUsed, "avg_mem_total_MB", nullptr);
  return out;
}

namespace {

// Rows times their length, with gradient accumulation; what of a row is padding counts too.
Json guide_keys(const RunSummary& s) {
  const auto tokens = static_cast<double>(s.totals.samples * s.facts.seq_len);
  const double ranks = s.world_size;
  const double rate = s.totals.step_time_s > 0 ? tokens / s.totals.step_time_s : 0;
  Json out = to_json(s.facts);
  out.update({{"approx_tokens", s.totals.samples * s.facts.seq_len},
              {"approx_tokens_per_rank", tokens / ranks},
              {"approx_tokens_per_s", rate},
              {"approx_tokens_per_s_per_rank", rate / ranks},
              {"peak_GiB", static_cast<double>(s.peak_bytes) / (1 << 30)}});
  return out;
}

}  // namespace

Json ranges_json(const BatchRanges& ranges) {
  Json out = Json::array();
  for (const auto& [first, end] : ranges) out.push_back(Json::array({first, end}));
  return out;
}

BatchRanges ranges_from(const Json& json) {
  BatchRanges ranges;
  for (const Json& range : json) ranges.push_back({range.at(0), range.at(1)});
  return ranges;
}

void write_summary(const std::filesystem::path& path, const RunSummary& s) {
  const double rate = s.totals.step_time_s > 0
                          ? static_cast<double>(s.totals.true_tokens) / s.totals.step_time_s
                          : 0;
  Json out = {{"model", s.facts.model.empty() ? s.model : s.facts.model},
              {"model_shape", s.model},
              {"parameters", s.parameters},
              {"strategy", s.strategy},
              {"dtype", s.dtype},
              {"world_size", s.world_size},
              {"hosts", hosts_json(s)},
              {"threads_per_rank", s.threads_per_rank},
              {"interrupted", s.totals.signal != 0},
              {"ended",
               {{"status", s.end.status},
                {"reason", s.end.reason},
                {"last_durable_step", s.end.last_durable_step}}},
              {"resumed_from", s.resumed_from},
              {"weights_hash", s.weights_hash},
              {"optimizer_hash", s.optimizer_hash},
              {"best_step", s.best_step ? Json(*s.best_step) : Json()},
              {"epochs", s.epochs},
              {"batch_making_s", s.batch_making_s},
              {"batch_waiting_s", s.batch_waiting_s},
              {"tokens_per_s", rate},
              {"tokens_per_s_per_rank", rate / s.world_size},
              {"train_loss", s.totals.train_loss()},
              {"mean_train_loss", s.totals.mean_loss()},
              {"bigram_entropy", json_of(s.bigram_entropy)},
              {"memory",
               {{"predicted", peaks_json(s.predicted_memory, true)},
                {"ledger", peaks_json(s.memory, false)},
                {"predicted_on_host", peaks_json(s.predicted_host, true)},
                {"ledger_on_host", peaks_json(s.host, false)},
                {"predicted_in_file", peaks_json(s.predicted_file, true)},
                {"ledger_in_file", peaks_json(s.file, false)}}},
              {"rss_growth_bytes", s.resident_growth_bytes},
              {"collectives", collectives_json(s)},
              {"stragglers", stragglers_json(s)},
              {"late_hosts", late_hosts_json(s)},
              {"communication", overlap_json(s.overlap)}};
  visit_totals(s.totals, [&](const char*, const std::string_view key, const auto& value) {
    if (!key.empty()) out[key] = json_of(value);
  });
  visit_costs(s.costs, [&](const char* key, const auto& value) { out[key] = value; });
  out["save_stall_share"] = json_of(s.costs.save_stall_share());
  out["effective_share"] = s.costs.effective_share(s.totals.wall_time_s);
  for (const Json& more : {callback_metrics(s), guide_keys(s)}) {
    for (const auto& [key, value] : more.items()) {
      if (!out.contains(key)) out[key] = value;
    }
  }
  write_json_file(path, out);
}

}  // namespace fsdp::tools
