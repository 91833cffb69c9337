// Contract: tools/plan/planned_job.h.
#include "tools/plan/planned_job.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/text/byte_size.h"
#include "core/text/counted.h"
#include "tools/checkpoint/owned_state.h"
#include "tools/config/key_values.h"
#include "tools/config/step_shape.h"
#include "tools/predict/machines.h"
#include "tools/predict/memory_view.h"
#include "tools/train/config_to_session.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

constexpr double kDay = 86400;

std::string shape_text(const config::StepShape& shape) {
  const int64_t rows =
      shape.rows_per_pass > 0
          ? shape.rows_per_pass
          : (shape.batch + shape.ranks * shape.micro_steps - 1) / (shape.ranks * shape.micro_steps);
  return fmt::format("{} x {}", rows, shape.micro_steps);
}

// Of a node's ranks, whose disk it is.
double seconds_to_save(MetaRun& run, int ranks_of_node, const Rates& rates) {
  double bytes = 0;
  for (const StatePartOwned& part : owned_state(run.session())) {
    bytes += static_cast<double>(part.values.bytes());
  }
  return rates.disk_write.seconds(bytes * ranks_of_node);
}

void add_failures(const PlanQuestion& question, PlannedJob& job) {
  if (question.failures_per_gpu_day == 0) return;
  const Failures failures = {.mean_s = kDay / (question.failures_per_gpu_day * job.gpus),
                             .checkpoint_s = job.checkpoint_s,
                             .restart_s = question.restart_s};
  job.checkpoint_every_s = std::max(best_interval_s(failures), job.step_s);  // between steps
  job.useful_share = useful_share(failures, *job.checkpoint_every_s);
  FSDP_CHECK(job.useful_share > 1e-6,
             "failures: one every {:.3g} s on average leaves no time for work", failures.mean_s);
  if (job.useful_share < 0.5) {
    job.warnings.push_back(fmt::format(
        "failures: one every {:.0f} s on average; most of the time is lost", failures.mean_s));
  }
}

void add_cost(const PlanQuestion& question, PlannedJob& job) {
  if (question.tokens == 0) return;
  job.days = question.tokens / job.tokens_per_step * job.step_s / job.useful_share / kDay;
  job.failures = *job.days * job.gpus * question.failures_per_gpu_day;
  if (question.price_per_gpu_hour > 0) {
    job.cost = *job.days * 24 * job.gpus * question.price_per_gpu_hour;
  }
}

config::TrainConfig changed(const PlanQuestion& question, const JobSettings& settings) {
  if (settings.overrides.empty()) return question.config;
  const std::vector<config::Override> keys(settings.overrides.begin(), settings.overrides.end());
  return config::parse_config(config::to_yaml(question.config), "", keys);
}

}  // namespace

double model_flops_per_token(const models::ModelConfig& model, int64_t length) {
  return 6.0 * static_cast<double>(model.parameter_count()) +
         12.0 * static_cast<double>(model.layers * model.heads * model.head_dim * length);
}

size_t memory_limit_of(const PlanQuestion& question, int gpus) {
  if (machine_rates(question.gpu).device_gib == 0) return 0;
  const auto left = static_cast<double>(gpu_memory(question.gpu, gpus).left());
  return static_cast<size_t>(left * (1 - question.safety));
}

std::shared_ptr<CallRates> rates_of(const PlanQuestion& question) {
  return std::make_shared<CallRates>(question.rates, MeasureCall{}, question.percentile);
}

PlannedJob plan_job(const PlanQuestion& question, const JobSettings& settings,
                    const std::shared_ptr<CallRates>& rates, size_t most) {
  const int each = question.rates.ranks_per_node;
  PlannedJob job = {.settings = settings, .gpus = settings.nodes * each};
  job.config = changed(question, settings);
  const config::StepShape shape = config::step_shape(job.config, job.gpus);
  FSDP_CHECK(shape.batch >= job.gpus, "train.batch: {} rows are too few for {}", shape.batch,
             counted(job.gpus, "GPU"));
  BackendOptions backend;
  if (machine_rates(question.gpu).device_gib > 0) backend.cuda.emplace();
  const RunPlan plan(job.config, vocabulary_of(job.config), data_of(job.config, job.gpus), job.gpus,
                     backend, rates);
  const PlannedRun planned = plan.run({}, most);
  MetaRun& run = *planned.run;
  const int64_t length = job.config.data.sequence_length;
  job.shape = shape_text(shape);
  job.step_s = 1e-3 * run.step_ms();
  job.tokens_per_step = static_cast<double>(shape.batch * length);
  job.shares = step_shares(run.last_step(), run.step_ms());
  job.bound = job.shares.bound();
  job.host_bytes = run.host_needed();
  job.peak_bytes = planned.bytes - (run.on_gpu() ? 0 : job.host_bytes);
  job.checkpoint_s = question.checkpoint_s.value_or(seconds_to_save(run, each, question.rates));
  const auto peak = question.rates.peak_flops_per_s.find(job.config.train.dtype);
  const bool frozen = !describe_trained(run.session().parameters()).empty();
  if (peak != question.rates.peak_flops_per_s.end() && !frozen) {
    job.mfu = job.tokens_per_s_gpu() *
              model_flops_per_token(run.session().model().config(), length) / peak->second;
  }
  job.warnings = outside_of_validation(question, job);
  if (std::string remark = remark_on_documents(kind_of_rows(job.config.data)); !remark.empty()) {
    job.warnings.push_back(std::move(remark));
  }
  if (job.host_bytes > 0) {
    job.warnings.push_back(fmt::format("offloaded state takes {} of each node's memory",
                                       byte_size_text(job.host_bytes * static_cast<size_t>(each))));
  }
  if (peak == question.rates.peak_flops_per_s.end() && !question.rates.peak_flops_per_s.empty()) {
    job.warnings.push_back(fmt::format("the data sheet of {} has no {}: its rate is a guess",
                                       question.gpu, name_of(job.config.train.dtype)));
  }
  add_failures(question, job);
  add_cost(question, job);
  return job;
}

void look_at_latency(const PlanQuestion& question, PlannedJob& job) {
  PlanQuestion near = question;
  for (LinkRate* link : {&near.rates.inside_node, &near.rates.between_nodes}) {
    link->latency_us = link->hop_us = 0;
  }
  job.latency_s = job.step_s - plan_job(near, job.settings, rates_of(near)).step_s;
  const bool waits = job.bound == "gather" || job.bound == "reduce";
  if (waits && 2 * job.latency_s > job.shares.gather_s + job.shares.reduce_s) job.bound = "latency";
}

double best_interval_s(const Failures& failures) {
  const double share = failures.checkpoint_s / (2 * failures.mean_s);
  if (share >= 1) return failures.mean_s;
  return std::sqrt(2 * failures.checkpoint_s * failures.mean_s) *
             (1 + std::sqrt(share) / 3 + share / 9) -
         failures.checkpoint_s;
}

double useful_share(const Failures& failures, double interval_s) {
  const double mean_s = failures.mean_s;
  return interval_s / (mean_s * std::exp(failures.restart_s / mean_s) *
                       std::expm1((interval_s + failures.checkpoint_s) / mean_s));
}
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

// The ranges of the published rows: tests/tools/plan/planned_job_test.cpp compares them.
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
