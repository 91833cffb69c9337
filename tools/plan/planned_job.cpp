// Contract: tools/plan/planned_job.h.
#include "tools/plan/planned_job.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/text/byte_size.h"
#include "core/text/counted.h"
#include "tools/checkpoint/owned_state.h"
#include "tools/config/step_shape.h"
#include "tools/plan/failures.h"
#include "tools/plan/validated_range.h"
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
             "failures: one every {:.3g} s in the mean leaves no time for work", failures.mean_s);
  if (job.useful_share < 0.5) {
    job.warnings.push_back(fmt::format(
        "failures: one every {:.0f} s in the mean; most of the time is lost", failures.mean_s));
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
  if (job.host_bytes > 0) {
    job.warnings.push_back(fmt::format("what is offloaded takes {} of each node's memory",
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

}  // namespace fsdp::tools
