// What a run leaves behind in numbers: metrics.jsonl, a line per logged step or evaluation, and
// metrics.json, the summary. JSON has no NaN: a value that is not finite is written as null.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "comm/collective_ring.h"
#include "comm/straggler.h"
#include "core/io/json.h"
#include "core/memory_ledger.h"
#include "tools/report/communication_overlap.h"
#include "tools/report/line_log.h"
#include "tools/report/load_samples.h"
#include "tools/report/run_costs.h"
#include "tools/report/run_directory.h"
#include "tools/report/train_totals.h"

namespace fsdp::tools {

struct EvaluationMetrics {
  int64_t step = 0;
  std::optional<double> epoch = {};
  double loss = 0;
  double best_loss = 0;   // so far
  double runtime_s = 0;   // of this evaluation
  int64_t tokens = 0;     // predicted, over all ranks
  int64_t sequences = 0;  // over all ranks
  int64_t batches = 0;
};

// "step 20: the validation loss is nan"; "": it is finite, or there was no evaluation.
std::string nonfinite_validation(const TrainTotals& totals);

// metrics.jsonl. The ranks other than 0 have one without a path, which does nothing.
class MetricsLog {
 public:
  MetricsLog() = default;
  explicit MetricsLog(const std::filesystem::path& path) : log_(path) {}
  void step(const StepMetrics& metrics);
  void evaluation(const EvaluationMetrics& metrics);
  std::string problem() const { return log_.problem(); }
  void retry() { log_.retry(); }
  std::string sync() { return log_.sync(); }

 private:
  LineLog log_;
};

// How a run has ended, for who starts it again: a launcher may have a status of its own.
struct RunEnd {
  int status = 0;  // tools/launch/status.h
  std::string reason = {};
  int64_t last_durable_step = 0;  // that a start with --resume goes on from; 0: it begins anew
};

// The totals of a run, and what else is known at its end.
struct RunSummary {
  RunEnd end = {};
  RunFacts facts;
  std::string model;  // family and size
  std::string strategy;
  std::string dtype;
  int world_size = 1;
  std::vector<std::string> hosts = {};  // by rank
  int threads_per_rank = 1;
  int64_t parameters = 0;
  TrainTotals totals = {};
  RunCosts costs = {};
  double epochs = 0;
  double batch_making_s = 0;   // of rank 0's batches but the first
  double batch_waiting_s = 0;  // while a step waited for one of them
  int64_t resumed_from = 0;    // the step whose checkpoint the run went on from; 0: none
  std::string weights_hash;    // of the state after the last step, the same for equal states
  std::string optimizer_hash;
  std::optional<int64_t> best_step;  // of the checkpoints
  std::optional<double> bigram_entropy;
  MemoryUsage predicted_memory;                 // of rank 0, before the run
  MemoryUsage memory;                           // ledger of rank 0, from loading to its end
  size_t peak_bytes = 0;                        // ledger of the rank that held most
  MemoryUsage predicted_host, host;             // the same of what is offloaded
  MemoryUsage predicted_file, file;             // and of its file
  size_t resident_growth_bytes = 0;             // of the process of rank 0
  SampleSums samples_of_load;                   // of all ranks, while this process trained
  comm::CallTotals collectives;                 // of rank 0, evaluations included
  std::vector<comm::Straggler> stragglers;      // ranks that the others waited for
  std::vector<comm::Straggler> late_hosts;      // and hosts; of each its first rank
  std::optional<CommunicationOverlap> overlap;  // of rank 0, when a timeline was recorded
};
// The names that the callbacks of the BLOOM workshop give to speed and utilisation.
Json callback_metrics(const RunSummary& summary);
void write_summary(const std::filesystem::path& path, const RunSummary& summary);
// [[first, end], ...]
Json ranges_json(const BatchRanges& ranges);
BatchRanges ranges_from(const Json& json);

}  // namespace fsdp::tools
