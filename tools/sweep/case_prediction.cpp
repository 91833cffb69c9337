// Contract: tools/sweep/case_prediction.h.
#include "tools/sweep/case_prediction.h"

#include <algorithm>

#include "core/error.h"
#include "tools/launch/thread_choice.h"
#include "tools/predict/memory_limit.h"
#include "tools/predict/memory_view.h"
#include "tools/predict/rates_file.h"
#include "tools/report/run_columns.h"
#include "tools/report/text_table.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

RunPlan plan_of(const config::TrainConfig& config, int ranks, const BackendOptions& backend,
                std::shared_ptr<CallRates> rates = nullptr) {
  return {config, vocabulary_of(config), data_of(config, ranks), ranks, backend, std::move(rates)};
}

// As a run on the CPU of this machine has it, whose ranks are all here.
MemoryLimit limit_here(const config::TrainConfig& config, int ranks) {
  const AvailableMemory available = available_memory();
  return memory_limit(config.runtime.memory_limit, {.available = available,
                                                    .ranks = available.of_process ? 1 : ranks,
                                                    .overhead = overhead_of_rank(available, 1)});
}

constexpr double kMiB = 1 << 20;

std::string mib(size_t bytes) { return text_of(static_cast<double>(bytes) / kMiB, 2); }

// Of all steps; epochs are as long as the text.
std::string seconds_of(const config::TrainConfig& config, double step_ms) {
  if (config.train.epochs > 0) return "-";
  return text_of(step_ms * static_cast<double>(config.train.steps) / 1000, 2);
}

// Of the rank that takes most.
size_t on_device(const PlannedRun& planned) {
  return planned.bytes - (planned.run->needed() - planned.run->device_needed());
}

std::string full_size_text(const FullSizeCase& full) {
  try {
    const std::map<std::string, Json> said = predict_full_size(full);
    const auto fits = said.find("full_size_fits");
    return fmt::format(
        " {} MiB a rank{}", text_of(said.at("full_size_peak"), 2),
        fits == said.end()
            ? ""
            : fmt::format(", {} in {}", fits->second.get<bool>() ? "fits" : "does not fit",
                          full.gpu));
  } catch (const Error& error) {
    return fmt::format(": {}", error.what());
  }
}

}  // namespace

CasePrediction predict_case(const config::TrainConfig& config, int ranks,
                            const std::string& rates_file) {
  const int threads = threads_here(static_cast<int>(config.runtime.launch.threads), ranks);
  const auto rates = call_rates({.rates = rates_file});
  const RunPlan plan = plan_of(config, ranks, {.cpu = {.threads = threads}}, rates);
  const PlannedRun planned = plan.run();
  return {.device = on_device(planned),
          .host = planned.run->host_needed(),
          .file = planned.run->file_needed(),
          .step_ms = planned.run->step_ms(),
          .machine = rates->rates().machine,
          .refusal = refusal(plan, limit_here(config, ranks))};
}

std::string predicted_table(const std::vector<SweepCase>& cases, const std::string& rates_file) {
  TextTable table = {.heads = {"case", "ranks", "device (MiB)", "host (MiB)", "disk (MiB)", "fits",
                               "ms/step", "all steps (s)"},
                     .rows = {}};
  std::string notes, machine;
  for (const SweepCase& each : cases) {
    const CasePrediction said = predict_case(each.config, each.ranks, rates_file);
    table.rows.push_back({each.name, std::to_string(each.ranks), mib(said.device), mib(said.host),
                          mib(said.file), said.refusal.empty() ? "yes" : "no",
                          text_of(said.step_ms, 2), seconds_of(each.config, said.step_ms)});
    if (!said.refusal.empty()) notes += fmt::format("{}: {}\n", each.name, said.refusal);
    if (each.full_size)
      notes += fmt::format("{}: at full size{}\n", each.name, full_size_text(*each.full_size));
    machine = said.machine;
    for (const std::string& note : each.notes) notes += fmt::format("{}: {}\n", each.name, note);
  }
  return side_by_side(table) +
         fmt::format(
             "memory: predicted, of a rank, with scratch of kernels and gaps, which peak_predicted "
             "leaves out; times: predicted, on {}; to compare with each "
             "other\n{}",
             machine, notes);
}

std::map<std::string, Json> predict_full_size(const FullSizeCase& full) {
  BackendOptions backend = {
      .cpu = {.threads = threads_here(static_cast<int>(full.config.runtime.launch.threads), 1)}};
  if (!full.gpu.empty()) backend.cuda.emplace();
  const PlannedRun planned = plan_of(full.config, full.ranks, backend).run();
  std::map<std::string, Json> out = {
      {"full_size_peak", static_cast<double>(on_device(planned)) / kMiB}};
  if (!full.gpu.empty()) {
    out["full_size_fits"] = planned.bytes <= gpu_memory(full.gpu, full.ranks).left();
  }
  return out;
}

}  // namespace fsdp::tools
