// Lines of metrics.jsonl under other names.
#include "tools/guides/result_files.h"

#include <array>
#include <cmath>
#include <sstream>

#include <fmt/ranges.h>

#include "core/io/file.h"
#include "core/io/json.h"

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

std::vector<Json> lines_of(const std::filesystem::path& log) {
  std::vector<Json> lines;
  if (!std::filesystem::exists(log)) return lines;  // somebody removed it during the run
  std::istringstream in(read_file(log));
  for (std::string line; std::getline(in, line);) {
    lines.push_back(parse_json_line(line, fmt::format("{}:{}", log.string(), lines.size() + 1)));
  }
  return lines;
}

// null where a line, of an older program, has no such key
Json value_of(const Json& line, std::string_view key) {
  const Json* const found = line.find(key);
  return found ? *found : Json();
}

bool is_evaluation(const Json& line) { return line.contains("validation_loss"); }

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

Json evaluation_results(const Json& line) {
  const Json& loss = line.at("validation_loss");
  Json out = {{"epoch", value_of(line, "epoch")}, {"eval_loss", loss}};
  out.update(speed("eval", line.value("runtime_s", 0.0), line.value("sequences", int64_t{0}),
                   line.value("batches", int64_t{0})));
  out["perplexity"] = loss.is_null() ? Json() : Json(perplexity_of(loss));
  return out;
}

Json training_results(const RunSummary& summary) {
  Json out = {{"epoch", summary.epochs}, {"train_loss", summary.totals.mean_loss()}};
  out.update(
      speed("train", summary.totals.wall_time_s, summary.totals.samples, summary.totals.steps));
  return out;
}

// With the results of the whole training behind the last line, as Trainer's own.
Json history_of(const std::vector<Json>& lines, const RunSummary& summary) {
  Json history = Json::array();
  for (const Json& line : lines) {
    Json entry;
    if (is_evaluation(line)) {
      entry = evaluation_results(line);
      entry.erase("perplexity");
    } else {
      for (const char* key : {"epoch", "grad_norm", "learning_rate", "loss"}) {
        entry[key] = value_of(line, key);
      }
    }
    entry["step"] = line.at("step");
    history.push_back(std::move(entry));
  }
  Json end = training_results(summary);
  end["step"] = summary.totals.steps;
  history.push_back(std::move(end));
  return history;
}

Json state_of(const std::vector<Json>& lines, const RunSummary& s, const RunIntervals& i) {
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
          {"log_history", history_of(lines, s)},
          {"logging_steps", i.log_every},
          {"max_steps", i.steps},
          {"num_train_epochs", i.epochs > 0 ? Json(i.epochs) : Json(std::ceil(s.epochs))},
          {"save_steps", i.save_every},
          {"train_batch_size", i.rows_per_rank},
          {"trial_name", nullptr},
          {"trial_params", nullptr}};
}

std::string table_of(const std::vector<Json>& lines) {
  std::string out = fmt::format("{}\n", fmt::join(kColumns, ","));
  for (const Json& line : lines) {
    std::string row;
    for (const char* column : kColumns) {
      const Json* const value = line.find(column);
      if (column != kColumns.front()) row += ',';
      if (value && !value->is_null()) row += value->dump();
    }
    out += row + '\n';
  }
  return out;
}

void write_result_files(const std::filesystem::path& directory, const RunSummary& summary,
                        const RunIntervals& intervals) {
  const std::vector<Json> lines = lines_of(directory / "metrics.jsonl");
  Json all = training_results(summary);
  write_json_file(directory / "train_results.json", all);
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (!is_evaluation(*line)) continue;
    const Json evaluation = evaluation_results(*line);
    write_json_file(directory / "eval_results.json", evaluation);
    all.update(evaluation);
    break;
  }
  all.update(callback_metrics(summary));
  write_json_file(directory / "all_results.json", all);
  write_json_file(directory / "trainer_state.json", state_of(lines, summary, intervals));
  write_file_atomically(directory / "metrics.csv", table_of(lines));
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
