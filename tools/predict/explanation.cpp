// The run, and what is said of it.
#include "tools/predict/explanation.h"

#include <algorithm>

#include "tools/checkpoint/owned_state.h"
#include "tools/config/step_shape.h"
#include "tools/model_folders/checkpoint_model.h"
#include "tools/predict/machines.h"
#include "tools/predict/memory_report.h"
#include "tools/predict/predicted_run.h"
#include "tools/predict/unit_table.h"
#include "tools/predict/unit_timeline.h"
#include "tools/train/config_to_session.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

std::string describe(const PlacedOptions& options, comm::GroupSizes groups, int ranks) {
  std::string out = describe_run(options.model, options.fsdp.strategy, ranks);
  if (groups.shards > 1 && groups.replicas > 1) {
    out += fmt::format(": {} replicas of {} shards", groups.replicas, groups.shards);
  }
  return out + "\n";
}

std::string trained_line(const std::vector<Parameter*>& parameters) {
  const std::string trained = describe_trained(parameters);
  return trained.empty() ? "" : trained + "\n";
}

// The model, what of it is trained, its units.
std::string describe_units(const PlacedOptions& options, MetaRun& run, int ranks,
                           const std::vector<UnitRow>& units) {
  const comm::GroupSizes groups = comm::group_sizes(options.fsdp, ranks);
  return fmt::format("{}{}\n{}", describe(options, groups, ranks),
                     trained_line(run.session().parameters()),
                     format_units(units, run.session().sharded().options(), groups));
}

std::string describe_batches(const config::TrainConfig& config, const models::ModelConfig& model,
                             int ranks) {
  const config::StepShape shape = config::step_shape(config, ranks);
  std::string out = shape.text() + "\n\n";
  if (shape.batch < ranks) {
    out += fmt::format(
        "note: train.batch: {} sequences are too few for {} ranks, and train refuses them; what is "
        "shown is for one sequence a rank\n",
        shape.batch, ranks);
  }
  for (const std::string& remark : remarks(config, model, ranks)) {
    out += fmt::format("note: {}\n", remark);
  }
  return out;
}

std::string describe_steps(const std::vector<UnitRow>& units, const MetaRun& run,
                           const CallRates& rates, const std::string& remarks) {
  const auto steps = step_timeline(run.last_step(), units);
  const CallRates::Sources& calls = rates.distinct_calls();
  return fmt::format(
      "{}\n{}  on {}; of the distinct calls {} have a row in the file of rates, {} were measured, "
      "{} are estimated\n{}\n"
      "{}: from top to bottom as the host issues it; what stands in one line overlaps\n{}",
      format_traffic(steps), format_step_time(step_time(run)), rates.rates().machine, calls.rows,
      calls.measured, calls.estimated, remarks,
      steps.size() == 1 ? "one step" : "the last micro-step of a step",
      format_timeline(units, steps.back()));
}

std::string megabytes(double bytes) { return fmt::format("{:.2f} MiB", bytes / (1 << 20)); }

// Of a node's ranks: they share its disk. A checkpoint that is written beside the steps is copied
// first.
std::string describe_checkpoint(const config::TrainConfig& config, MetaRun& run, int ranks,
                                const Rates& rates) {
  double own = 0;
  for (const StatePartOwned& part : owned_state(run.session())) {
    own += static_cast<double>(part.values.bytes());
  }
  const int together = std::min(ranks, rates.ranks_per_node);
  const double bytes = own * together;
  std::string out = fmt::format(
      "a checkpoint: {} of {} on a node; {:.2f} s to write, {:.2f} s to read on its disk\n",
      megabytes(bytes), together == 1 ? "the rank" : fmt::format("the {} ranks", together),
      rates.disk_write.seconds(bytes), rates.disk_read.seconds(bytes));
  if (config.checkpoint.async) {
    out += fmt::format("  its copy in the host's memory: {} of a rank, {} to copy\n",
                       megabytes(own), duration_text(rates.host_copy.seconds(own)));
  }
  return out;
}

// What a run does beside its steps, and how long it takes. A resumed run reads a checkpoint where
// another reads a model.
std::string describe_beside(const config::TrainConfig& config, const PredictedData& data,
                            MetaRun& run, int ranks, const Rates& rates) {
  std::string out = describe_checkpoint(config, run, ranks, rates);
  const auto bytes = static_cast<double>(run.session().model().config().parameter_count()) *
                     static_cast<double>(size_of(saved_dtype(config)));
  if (!config.model.path.empty()) {
    out += fmt::format("the model: {} to read on a node; {:.2f} s on its disk\n", megabytes(bytes),
                       rates.disk_read.seconds(bytes));
  }
  if (config.train.save && !run.session().lora()) {
    out += fmt::format("the saved model: {} of rank 0; {:.2f} s to write on its disk\n",
                       megabytes(bytes), rates.disk_write.seconds(bytes));
  }
  if (!data.validation_batches.empty()) {
    const double batch_s = 1e-3 * run.evaluation_ms();
    out += fmt::format("an evaluation: {} a batch", duration_text(batch_s));
    const int64_t batches = config.train.eval_batches;
    out += batches == 0
               ? "; as many as the text has\n"
               : fmt::format("; {} for {} batches\n",
                             duration_text(batch_s * static_cast<double>(batches)), batches);
  }
  return out + "\n";
}

// What one must know of the times, in lines.
std::string remarks_on(const RatesChoice& times, bool on_gpu, const CallRates& rates) {
  std::string out;
  if (on_gpu && times.rates.empty() && !times.meter) {
    out += "  neither --gpu nor --rates names the GPU: this one was assumed\n";
  }
  if (times.meter && times.meter->was_disturbed()) {
    out += "  something else kept the machine busy while it was measured: measure again\n";
  }
  const std::string& note = rates.rates().note;
  if (rates.distinct_calls().estimated > 0 && !note.empty()) out += "  " + note + "\n";
  return out;
}

BackendOptions backend_of(const config::TrainConfig& config, const ExplainQuestion& question) {
  BackendOptions out;
  const bool on_gpu = question.gpu.empty() ? config.runtime.launch.backend == "cuda"
                                           : machine_rates(question.gpu).device_gib > 0;
  if (on_gpu) out.cuda.emplace();
  return out;
}

}  // namespace

Explanation explain(const config::TrainConfig& asked, const ExplainQuestion& question) {
  config::TrainConfig config = asked;
  const int ranks = question.ranks;
  const std::optional<PyTorchLayout>& layout = question.layout;
  // PyTorch's shards are those of the units that its wrap policies make.
  if (layout && !config.fsdp.root) config.fsdp.root = config::RootUnit::kWhole;
  const models::ModelConfig model = model_config(config, vocabulary_of(config));
  const PlacedOptions session = session_options(config, model, ranks, backend_of(config, question));
  const comm::GroupSizes groups = comm::group_sizes(session.fsdp, ranks);
  RatesChoice times = question.times;
  if (times.rates.empty() && !times.meter) times.rates = question.gpu;
  const auto rates = call_rates(times);
  const PredictedData data = data_of(config, ranks);
  const auto run = predicted_run(config, session, data, ranks, 0, rates);
  const std::vector<UnitRow> units = unit_rows(run->session().sharded());
  const bool timed = !rates->rates().memory_only;
  std::string text = fmt::format(
      "{}\n{}\n{}{}{}{}", describe_units(session, *run, ranks, units),
      format_predicted_memory(*run),
      timed ? describe_beside(config, data, *run, ranks, rates->rates()) : "",
      describe_batches(config, model, ranks),
      layout ? format_layout(units, *layout, groups.shards, session.fsdp.param_dtype) + "\n" : "",
      timed ? describe_steps(units, *run, *rates,
                             remarks_on(times, session.backend.cuda.has_value(), *rates) +
                                 (data.kind.document > 0
                                      ? fmt::format("  {}\n", remark_on_documents(data.kind))
                                      : ""))
            : fmt::format("times: of {} the memory alone is known; --rates NAME takes the times of "
                          "a machine\n",
                          rates->rates().machine));
  return {std::move(text), rates};
}

std::string explain_units(const config::TrainConfig& config, int ranks) {
  const models::ModelConfig model = model_config(config, vocabulary_of(config));
  const PlacedOptions session = session_options(config, model, ranks, {});
  MetaRun run(session, ranks);
  return describe_units(session, run, ranks, unit_rows(run.session().sharded()));
}

}  // namespace fsdp::tools
