// One job on machines that may not be there: what a step takes, in time and memory, and what it all
// comes to. The run is that of `fsdp memory` and `fsdp explain`. Read next: plan_search.h (many
// jobs), step_shares.h. Not here: tables (plan_report.h).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/plan/step_shares.h"
#include "tools/predict/call_rates.h"
#include "tools/predict/memory_changes.h"

namespace fsdp::tools {

// What all jobs of a plan have in common.
struct PlanQuestion {
  config::TrainConfig config;
  std::string gpu;  // name of a machine (tools/predict/machines.h)
  Rates rates;      // what its calls take; ranks_per_node: GPUs of a node
  double percentile = 50;
  double safety = 0.05;                               // share of a device's memory that stays free
  double tokens = 0;                                  // to train on; 0: not asked
  double price_per_gpu_hour = 0;                      // 0: not known
  double failures_per_gpu_day = 0;                    // 0: none
  std::optional<double> checkpoint_s = std::nullopt;  // none: as the nodes' disks write it
  double restart_s = 300;
};

struct JobSettings {
  int nodes = 1;
  std::vector<std::string> overrides = {};  // of PlanQuestion::config: "fsdp.strategy=no_shard"
};

struct PlannedJob {
  JobSettings settings;
  config::TrainConfig config;  // with the overrides
  int gpus = 1;
  std::string shape;  // "2 rows x 4": of a pass, and micro-steps
  double step_s = 0, tokens_per_step = 0;
  // See model_flops_per_token. None: the device's peak is not known, or parameters are frozen.
  std::optional<double> mfu;
  StepShares shares;
  double latency_s = 0;  // of the step: what it would be faster by, if links had no latency
  size_t peak_bytes = 0, host_bytes = 0;  // of a rank; on the device, and on the host
  std::string bound;                      // of StepShares, or "latency"
  std::optional<double> days, cost;
  double failures = 0;      // in these days
  double useful_share = 1;  // of the time, with the best interval between checkpoints
  double checkpoint_s = 0;
  std::optional<double> checkpoint_every_s;
  std::vector<std::string> warnings;

  double tokens_per_s_gpu() const { return tokens_per_step / step_s / gpus; }
};

// 6 N + 12 layers x heads x head size x length, for N parameters (PaLM, arXiv 2204.02311, appendix
// B): what the utilization counts, whatever is computed again.
double model_flops_per_token(const models::ModelConfig& model, int64_t length);

// What a rank may take of the device: less what stays free. 0: nobody knows how much there is.
size_t memory_limit_of(const PlanQuestion& question, int gpus);

// For the jobs of one thread.
std::shared_ptr<CallRates> rates_of(const PlanQuestion& question);

// Error if train refuses the configuration on so many ranks, or it needs more than `most` bytes (0:
// no matter), or failures leave no time for work. `rates`: of the question, for one thread at a
// time.
PlannedJob plan_job(const PlanQuestion& question, const JobSettings& settings,
                    const std::shared_ptr<CallRates>& rates, size_t most = 0);

// Sets latency_s and a bound of latency, by one more run.
void look_at_latency(const PlanQuestion& question, PlannedJob& job);

// ---- How much of a job's time is work when its machines fail now and then, and how often it
// should save. Failures come at random, with a mean time M between them; a checkpoint takes d, a
// restart R; a failure loses the work since the last checkpoint.
//
//   best interval   sqrt(2 d M) (1 + sqrt(d / 2M) / 3 + d / 2M / 9) - d, or M where d >= 2M
//   share of work   t / (M e^(R/M) (e^((t + d)/M) - 1)), for an interval of t seconds of work
//
// Sources: J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart
// dumps", Future Generation Computer Systems 22 (2006), equations 37 and 20; its first term is
// J. W. Young's of 1974. Not here: what a checkpoint takes (tools/predict).

struct Failures {
  double mean_s = 0;        // between two of the job: 1 / (rate of a GPU x GPUs)
  double checkpoint_s = 0;  // above 0
  double restart_s = 0;     // until the job works again
};

double best_interval_s(const Failures& failures);
// 0 to 1, with a checkpoint after every `interval_s` of work.
double useful_share(const Failures& failures, double interval_s);

// ---- Which published steps predictions of a machine were held against (tests/fixtures/planning):
// a job outside of them says so. Not here: how good predictions are within (validation.h).

struct ValidatedRange {
  std::string machine;
  int64_t longest = 0;  // tokens of a row
  int most_gpus = 0;
  DType dtype = DType::kBF16;
  std::vector<std::string> strategies = {}, recompute = {};  // by their names in the configuration
  // Errors of the step's time with the machine's file, of the set that is predicted worst.
  double median = 0, p90 = 0;
};
const std::vector<ValidatedRange>& validated_ranges();

// "published steps on H100: half of them are predicted within 1.7 %, ..."; "": there are none.
std::string error_band(const std::string& machine);

// A line for everything of the job that no published step had.
std::vector<std::string> outside_of_validation(const PlanQuestion& question, const PlannedJob& job);

}  // namespace fsdp::tools
