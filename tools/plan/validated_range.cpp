// Contract: tools/plan/validated_range.h.
#include "tools/plan/validated_range.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/text/counted.h"
#include "tools/config/key_values.h"
#include "tools/predict/machines.h"

namespace fsdp::tools {
namespace {

std::string value_of(const config::TrainConfig& config, const std::string& key) {
  for (const auto& [name, value] : config::key_values(config)) {
    if (name == key) return value;
  }
  return "";
}

// Of the machine that the times are of.
void compare_machine(const PlanQuestion& question, std::vector<std::string>& out) {
  const Rates named = machine_rates(question.gpu);
  Rates rates = question.rates;
  if (rates.ranks_per_node != named.ranks_per_node) {
    out.push_back(fmt::format("not validated: {} in a node; published steps on {} have {}",
                              counted(rates.ranks_per_node, "GPU"), question.gpu,
                              named.ranks_per_node));
    rates.ranks_per_node = named.ranks_per_node;
  }
  if (rates != named) {
    out.push_back(fmt::format(
        "not validated: the times are those of {}; the memory is that of {}, whatever --rates says",
        rates.machine, question.gpu));
  }
}

}  // namespace

// As the rows are: tests/tools/plan/validated_range_test.cpp.
const std::vector<ValidatedRange>& validated_ranges() {
  using enum DType;
  static const std::vector<ValidatedRange> kRanges = {
      {"A100-40", 32768, 128, kBF16, {"full_shard"}, {"full", "none"}, 0.018, 0.071},
      {"A100-80", 65536, 32, kBF16, {"full_shard"}, {"full", "none"}, 0.026, 0.067},
      {"DGX-A100", 1024, 8, kF16, {"no_shard"}, {"none"}, 0.052, 0.092},
      {"H100", 65536, 512, kBF16, {"full_shard", "shard_grad_op"}, {"full", "none"}, 0.017, 0.039},
      {"H100-500W", 8192, 128, kBF16, {"full_shard"}, {"selective"}, 0.069, 0.076},
      {"H100-EFA", 4096, 256, kBF16, {"no_shard", "shard_optimizer"}, {"none"}, 0.048, 0.201},
      {"H100-cublaslt", 1024, 8, kBF16, {"no_shard", "shard_optimizer"}, {"none"}, 0.02, 0.04},
  };
  return kRanges;
}

namespace {

// Null: it has no published steps.
const ValidatedRange* range_of(const std::string& machine) {
  for (const ValidatedRange& each : validated_ranges()) {
    if (each.machine == machine) return &each;
  }
  return nullptr;
}

}  // namespace

std::string error_band(const std::string& machine) {
  const ValidatedRange* const range = range_of(machine);
  if (!range) return "";
  return fmt::format(
      "published steps on {}: half of them are predicted within {:.1f} %, nine of ten within "
      "{:.1f} %",
      machine, 100 * range->median, 100 * range->p90);
}

std::vector<std::string> outside_of_validation(const PlanQuestion& question,
                                               const PlannedJob& job) {
  const ValidatedRange* const range = range_of(question.gpu);
  if (!range) {
    return {fmt::format("not validated: no published step on {}", question.gpu)};
  }
  std::vector<std::string> out;
  compare_machine(question, out);
  const auto differs = [&](const std::string& what, std::string_view published) {
    out.push_back(fmt::format("not validated: {}; published steps on {} have {}", what,
                              range->machine, published));
  };
  const config::TrainConfig& config = job.config;
  if (config.train.dtype != range->dtype) {
    differs(std::string(name_of(config.train.dtype)), name_of(range->dtype));
  }
  if (const int64_t length = config.data.sequence_length; length > range->longest) {
    differs(fmt::format("{} tokens a row", length), fmt::format("up to {}", range->longest));
  }
  if (job.gpus > range->most_gpus) {
    differs(counted(job.gpus, "GPU"), fmt::format("up to {}", range->most_gpus));
  }
  const auto compare = [&](const std::string& key, const std::vector<std::string>& published) {
    const std::string value = value_of(config, key);
    if (std::find(published.begin(), published.end(), value) != published.end()) return;
    differs(fmt::format("{} {}", key, value), fmt::format("{}", fmt::join(published, ", ")));
  };
  if (job.gpus > 1) compare("fsdp.strategy", range->strategies);
  compare("train.recompute.mode", range->recompute);
  compare("fsdp.offload", {"none"});
  return out;
}

}  // namespace fsdp::tools
