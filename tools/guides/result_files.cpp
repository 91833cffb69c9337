// Lines of metrics.jsonl under other names, one after the other.
#include "tools/guides/result_files.h"

#include <array>
#include <cmath>
#include <fstream>

#include <fmt/ranges.h>

#include "core/io/file.h"
#include "core/io/json.h"
#include "tools/report/metrics_line.h"

namespace fsdp::tools {
namespace {

constexpr std::array kColumns = {"step",
                                 "epoch",
                                 "loss",
                                 "grad_norm",
                                 "learning_rate",
                                 "loss_scale",
                                 "skipped_steps",
                                 "true_tokens",
                                 "samples",
                                 "tokens_per_s",
                                 "wall_time_s",
                                 "peak_memory_bytes",
                                 "validation_loss",
                                 "best_validation_loss",
                                 "runtime_s"};

// "train_runtime", "train_samples_per_second", "train_steps_per_second"
Json speed(const std::string& split, double seconds, int64_t samples, int64_t steps) {
  Json out = Json::object();
  out[split + "_runtime"] = seconds;
  if (seconds > 0) {
    out[split + "_samples_per_second"] = static_cast<double>(samples) / seconds;
    out[split + "_steps_per_second"] = static_cast<double>(steps) / seconds;
  }
  return out;
}

Json json_of(const std::optional<double>& number) { return number ? Json(*number) : Json(); }

Json evaluation_results(const MetricsLine& line) {
  const std::optional<double> loss = line.number("validation_loss");
  Json out = {{"epoch", json_of(line.number("epoch"))}, {"eval_loss", json_of(loss)}};
  const auto count = [&](const char* key) {
    return static_cast<int64_t>(line.number(key).value_or(0));
  };
  out.update(
      speed("eval", line.number("runtime_s").value_or(0), count("sequences"), count("batches")));
  out["perplexity"] = loss ? Json(perplexity_of(*loss)) : Json();
  return out;
}

Json training_results(const RunSummary& summary) {
  Json out = {{"epoch", summary.epochs}, {"train_loss", summary.totals.mean_loss()}};
  out.update(
      speed("train", summary.totals.wall_time_s, summary.totals.samples, summary.totals.steps));
  return out;
}

// `log_history` has one null in place of its entries.
Json state_of(const RunSummary& s, const RunIntervals& i) {
  const std::optional<double>& best = s.totals.best_validation_loss;
  return {{"best_global_step", s.best_step ? Json(*s.best_step) : Json()},
          {"best_metric", best ? Json(*best) : Json()},
          {"best_model_checkpoint", i.best_checkpoint.empty() ? Json() : Json(i.best_checkpoint)},
          {"epoch", s.epochs},
          {"eval_steps", i.eval_every},
          {"global_step", s.totals.steps},
          {"is_hyper_param_search", false},
          {"is_local_process_zero", true},
          {"is_world_process_zero", true},
          {"log_history", Json::array({nullptr})},
          {"logging_steps", i.log_every},
          {"max_steps", i.steps},
          {"num_train_epochs", i.epochs > 0 ? Json(i.epochs) : Json(std::ceil(s.epochs))},
          {"save_steps", i.save_every},
          {"train_batch_size", i.rows_per_rank},
          {"trial_name", nullptr},
          {"trial_params", nullptr}};
}

// trainer_state.json as write_json_file() would write it, whose log_history grows entry by entry.
class StateFile {
 public:
  StateFile(const std::filesystem::path& path, const Json& state) : file_(path) {
    const std::string text = state.dump({.indent = 2});
    const std::string_view list = "\"log_history\": [\n    ", entry = "null";
    const size_t at = text.find(list) + list.size();
    file_.write(std::string_view(text).substr(0, at));
    rest_ = text.substr(at + entry.size());
  }
  // The keys as they are given.
  void add(const std::vector<std::pair<std::string_view, std::string>>& entry) {
    std::string text;
    for (const auto& [key, value] : entry) {
      text += fmt::format("{}\n      \"{}\": {}", text.empty() ? "{" : ",", key, value);
    }
    file_.write((first_ ? "" : ",\n    ") + text + "\n    }");
    first_ = false;
  }
  void add(const Json& results, int64_t step) {
    std::vector<std::pair<std::string_view, std::string>> entry;
    for (const auto& [key, value] : results.items()) {
      if (key != "perplexity") entry.emplace_back(key, value.dump());
    }
    entry.emplace_back("step", fmt::format("{}", step));
    add(entry);
  }
  void commit() {
    file_.write(rest_ + "\n");
    file_.commit();
  }

 private:
  AtomicFile file_;
  std::string rest_;
  bool first_ = true;
};

std::string row_of(const MetricsLine& line) {
  std::string row;
  for (const char* column : kColumns) {
    const std::string_view value = line.text(column);
    if (column != kColumns.front()) row += ',';
    if (value != "null") row += value;
  }
  return row + '\n';
}

void add_step(const MetricsLine& line, StateFile& state) {
  std::vector<std::pair<std::string_view, std::string>> entry;
  for (const char* key : {"epoch", "grad_norm", "learning_rate", "loss", "step"}) {
    const std::string_view value = line.text(key);
    entry.emplace_back(key, value.empty() ? "null" : value);
  }
  state.add(entry);
}

// One pass over the log, of which no more than a line is in memory. A log that somebody removed
// during the run has no lines. Returns the results of the last evaluation; null: there is none.
Json write_histories(const std::filesystem::path& directory, const RunSummary& summary,
                     const RunIntervals& intervals) {
  StateFile state(directory / "trainer_state.json", state_of(summary, intervals));
  AtomicFile table(directory / "metrics.csv");
  table.write(fmt::format("{}\n", fmt::join(kColumns, ",")));
  Json evaluation;
  std::ifstream log(directory / "metrics.jsonl");
  for (std::string text; std::getline(log, text);) {
    const std::optional<MetricsLine> line = MetricsLine::read(text);
    if (!line) continue;  // of somebody else
    table.write(row_of(*line));
    if (!line->is_evaluation()) {
      add_step(*line, state);
      continue;
    }
    evaluation = evaluation_results(*line);
    state.add(evaluation, line->step());
  }
  // The results of the whole training behind the last line, as Trainer's own.
  state.add(training_results(summary), summary.totals.steps);
  state.commit();
  table.commit();
  return evaluation;
}

void write_result_files(const std::filesystem::path& directory, const RunSummary& summary,
                        const RunIntervals& intervals) {
  const Json evaluation = write_histories(directory, summary, intervals);
  Json all = training_results(summary);
  write_json_file(directory / "train_results.json", all);
  if (!evaluation.is_null()) {
    write_json_file(directory / "eval_results.json", evaluation);
    all.update(evaluation);
  }
  all.update(callback_metrics(summary));
  write_json_file(directory / "all_results.json", all);
}

}  // namespace

double perplexity_of(double loss) {
  constexpr double kMostLoss = 20;
  return std::exp(std::min(loss, kMostLoss));
}

const ResultFiles kTrainerFiles = {
    .names = {"train_results.json", "eval_results.json", "all_results.json", "trainer_state.json",
              "metrics.csv"},
    .write = write_result_files};

}  // namespace fsdp::tools
