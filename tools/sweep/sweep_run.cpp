// Contract: tools/sweep/sweep_run.h.
#include "tools/sweep/sweep_run.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tools/jobs/parent.h"
#include "tools/launch/interrupt.h"
#include "tools/launch/status.h"
#include "tools/report/progress.h"
#include "tools/sweep/case_prediction.h"
#include "tools/train/data_paths.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

// Whether the ranks of a run had to share cores of this machine; where GPUs compute they may.
bool shares_cores(const FinishedRun& run, int cores) {
  const Json* const gpu = run.metrics.find("gpu");
  if (gpu && !gpu->is_null()) return false;
  size_t most = 0;
  const Json* const hosts = run.metrics.find("hosts");
  if (!hosts) return false;
  for (const Json& host : *hosts) most = std::max(most, host.at("ranks").size());
  return most > static_cast<size_t>(cores);
}

class Sweep {
 public:
  Sweep(const Recipe& recipe, const std::vector<SweepCase>& cases, const SweepOptions& options)
      : recipe_(recipe), cases_(cases), options_(options), folder_(options.out) {
    table_.columns = columns_of(recipe, cases);
    table_.baseline = recipe.baseline.empty() ? cases.front().name : recipe.baseline;
    cores_ = this_host({.launcher = Launcher::kLocal}).cores;
    for (const SweepCase& each : cases) {
      CaseRow& row = table_.rows.emplace_back(
          CaseRow{.name = each.name, .status = CaseStatus::kOpen, .ranks = each.ranks});
      row.notes = each.notes;
      predict(each, row);
      for (int run = 1; run <= recipe.repeat; ++run) take(each, run, row);
    }
  }

  int run() {
    const SignalsWait signals_wait;  // they are the running job's
    write_table();
    for (int run = 1; run <= recipe_.repeat; ++run) {
      for (size_t i = 0; i < cases_.size(); ++i) {
        if (!is_open(i, run)) continue;
        const int stopped = run_once(i, run);
        write_table();
        if (stopped != 0) {
          options_.say("interrupted; the same command with --out " + folder_.path().string() +
                       " continues it");
          return stopped;
        }
      }
    }
    const bool failed = std::any_of(table_.rows.begin(), table_.rows.end(), [](const CaseRow& row) {
      return row.status == CaseStatus::kFailed;
    });
    return failed ? status::kFailed : status::kDone;
  }

  const CaseTable& table() const { return table_; }

 private:
  static void predict(const SweepCase& each, CaseRow& row) {
    try {
      if (each.full_size) row.known = predict_full_size(*each.full_size);
    } catch (const Error& error) {
      row.notes.push_back(fmt::format("at full size: {}", error.what()));
    }
  }

  // A run that has ended becomes a part of its row.
  bool take(const SweepCase& each, int run, CaseRow& row) {
    std::optional<FinishedRun> done = folder_.finished(each, run);
    if (!done) return false;
    if (!recipe_.evaluate.empty()) {
      const std::optional<Json> found = folder_.evaluation(each, run, recipe_.evaluate);
      if (!found) return false;
      done->metrics["evaluation"] = *found;
    }
    add(std::move(*done), run, row);
    row.status = CaseStatus::kRan;
    return true;
  }

  void add(FinishedRun done, int run, CaseRow& row) const {
    row.oversubscribed = shares_cores(done, cores_);
    if (number_at(done.metrics, "/restarts").value_or(0) > 0) {
      row.notes.push_back(fmt::format("run {} was broken off and went on", run));
    }
    row.runs.push_back(std::move(done));
  }

  bool is_open(size_t i, int run) const {
    const CaseStatus status = table_.rows[i].status;
    if (status == CaseStatus::kRefused || status == CaseStatus::kFailed) return false;
    const fs::path folder = folder_.run_of(cases_[i], run);
    return std::none_of(table_.rows[i].runs.begin(), table_.rows[i].runs.end(),
                        [&](const FinishedRun& done) { return done.folder == folder; });
  }

  int to_do() const {
    int count = 0;
    for (int run = 1; run <= recipe_.repeat; ++run) {
      for (size_t i = 0; i < cases_.size(); ++i) count += is_open(i, run);
    }
    return count;
  }

  // 0, or the status of the sweep where a signal has asked it, or the run alone, to stop.
  int run_once(size_t i, int run) {
    const SweepCase& each = cases_[i];
    CaseRow& row = table_.rows[i];
    const auto begin = std::chrono::steady_clock::now();
    const bool trained = folder_.finished(each, run).has_value();
    say_begin(row, run, folder_.run_of(each, run, trained ? kEvalLog : kTrainLog));
    JobResult result;
    if (!trained) result = train(each, run);
    if (result.status == status::kDone && !recipe_.evaluate.empty() && result.asked == 0) {
      result = evaluate(each, run);
    }
    ++runs_;
    if (result.status == status::kDone) {  // a refusal takes no time
      seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      ++timed_;
    }
    const bool stopped = result.asked != 0 || result.status == status::kStartAgain;
    if (result.status == status::kDone && take(each, run, row)) {
      say_progress(row, run, figures(row));
    } else if (!stopped) {
      end_badly(result.status, row);
      // Where the evaluation alone has failed, the training is in the row.
      if (auto done = folder_.finished(each, run)) add(std::move(*done), run, row);
      say_progress(
          row, run,
          fmt::format("{}: {}", name_of(row.status), row.reason.substr(0, row.reason.find('\n'))));
    }
    if (!stopped) return 0;
    return result.status == status::kDone ? status_after(result.asked) : result.status;
  }

  JobResult train(const SweepCase& each, int run) {
    const std::vector<std::string> words = {
        "train",
        "--config",
        folder_.config_of(each).string(),
        "--set",
        "runtime.run_dir=" + Json(folder_.run_of(each, run).string()).dump(),
        "--resume",
        "auto"};
    const fs::path log = folder_.run_of(each, run, kTrainLog);
    return start(each, words, log, log);
  }

  JobResult evaluate(const SweepCase& each, int run) {
    std::vector<std::string> words = {"eval", folder_.run_of(each, run).string()};
    for (const std::string& word : recipe_.evaluate) {
      words.push_back(resolve_path(word, recipe_.file, LookFirst::kBeside));  // the task's files
    }
    words.emplace_back("--json");
    const fs::path unfinished = folder_.run_of(each, run, kEvaluation).string() + ".unfinished";
    fs::remove(unfinished);
    const JobResult result = start(each, words, unfinished, folder_.run_of(each, run, kEvalLog));
    if (result.status == status::kDone) {
      try {
        folder_.keep_evaluation(each, run, recipe_.evaluate, unfinished);
      } catch (const Error& error) {  // the evaluation is not there: the case has failed
        options_.say(error.what());
      }
    }
    return result;
  }

  JobResult start(const SweepCase& each, const std::vector<std::string>& words,
                  const fs::path& output, const fs::path& errors) {
    log_ = errors;
    log_begin_ = is_there(log_) ? fs::file_size(log_) : 0;
    return run_job({.job = {.launcher = options_.launcher,
                            .ranks = each.ranks,
                            .hosts = options_.hosts,
                            .program = options_.program,
                            .arguments = words},
                    .restarts = {},
                    .run_directory = {},
                    .output = output,
                    .errors = errors,
                    .say = options_.say});
  }

  void end_badly(int status, CaseRow& row) const {
    std::string said = is_there(log_) ? read_file(log_) : "";
    said = reason_in(said.substr(std::min(log_begin_, said.size())));
    row.status = status == status::kDoesNotFit ? CaseStatus::kRefused : CaseStatus::kFailed;
    row.reason = row.status == CaseStatus::kRefused
                     ? said
                     : fmt::format("status {}: {} ({})", status, said, log_.string());
  }

  std::string figures(const CaseRow& row) const {
    CaseRow last = row;
    last.runs = {row.runs.back()};
    std::vector<std::string> texts;
    for (const RunColumn& column : table_.columns) {
      const std::string text = cell_of(table_, last, column);
      if (text != "-" && texts.size() < 4) texts.push_back(fmt::format("{} {}", column.head, text));
    }
    return fmt::format("{}", fmt::join(texts, ", "));
  }

  // "1/6 DDP, run 2"
  std::string name_of_run(int number, const CaseRow& row, int run) const {
    return fmt::format("{}/{} {}{}", number, runs_ + to_do(), row.name,
                       recipe_.repeat > 1 ? fmt::format(", run {}", run) : "");
  }

  void say_begin(const CaseRow& row, int run, const fs::path& log) const {
    options_.say(
        fmt::format("{}: running, its log is {}", name_of_run(runs_ + 1, row, run), log.string()));
  }

  void say_progress(const CaseRow& row, int run, const std::string& text) const {
    const int left = to_do();
    const double ahead = seconds_ / std::max(timed_, 1) * left;
    options_.say(fmt::format(
        "{}: {}{}", name_of_run(runs_, row, run), text,
        left > 0 && timed_ > 0 ? fmt::format("; about {} to go", format_duration(ahead)) : ""));
  }

  void write_table() const {
    folder_.write_table(table_, recipe_.name(), recipe_.question, options_.command);
  }

  const Recipe& recipe_;
  const std::vector<SweepCase>& cases_;
  const SweepOptions& options_;
  SweepFolder folder_;
  CaseTable table_;
  int cores_ = 1;
  int runs_ = 0;          // started by this process
  int timed_ = 0;         // of these, done
  double seconds_ = 0;    // that the timed ones took
  fs::path log_;          // of the job that was started last
  size_t log_begin_ = 0;  // of what the job has said
};

}  // namespace

std::vector<RunColumn> columns_of(const Recipe& recipe, const std::vector<SweepCase>& cases) {
  std::vector<std::string> names = recipe.columns;
  if (names.empty()) {
    names = {"s_per_step", "tokens_per_s", "peak_memory", "peak_predicted", "train_loss"};
    const bool same_ranks = std::all_of(cases.begin(), cases.end(), [&](const SweepCase& each) {
      return each.ranks == cases.front().ranks;
    });
    if (!same_ranks) names.insert(names.end(), {"speed_up", "efficiency"});
  }
  std::vector<RunColumn> out;
  for (const std::string& name : names) out.push_back(run_column(name));
  return out;
}

int run_sweep(const Recipe& recipe, const std::vector<SweepCase>& cases,
              const SweepOptions& options) {
  Sweep sweep(recipe, cases, options);
  const int status = sweep.run();
  options.say("");
  options.say(side_by_side(text_table(sweep.table())));
  for (const std::string& note : notes_of(sweep.table())) options.say(note);
  options.say(
      fmt::format("{}: also as table.csv and table.json", (options.out / "table.md").string()));
  return status;
}

std::string reason_in(const std::string& log) {
  std::string reason, last;
  bool inside = false;  // of an error of several lines
  // Lines of dashes stand around what mpirun says, whose first line says most.
  bool framed = false, frame_is_new = false;
  for (size_t begin = 0; begin < log.size();) {
    const size_t end = std::min(log.find('\n', begin), log.size());
    const std::string line = log.substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(' ') == std::string::npos) continue;
    if (line.find_first_not_of('-') == std::string::npos) {
      framed = true;
      frame_is_new = true;
    } else if (!framed || frame_is_new) {
      last = line;
      frame_is_new = false;
    }
    if (line.starts_with("fsdp: ") && !line.starts_with("fsdp: note: ") &&
        !line.starts_with("fsdp: warning: ")) {
      reason = line.substr(6);
      inside = true;
    } else if (inside && line.starts_with("  ")) {
      reason += "\n" + line;
    } else {
      inside = false;
    }
  }
  return reason.empty() ? last : reason;
}

}  // namespace fsdp::tools
