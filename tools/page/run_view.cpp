// Reading the files of a run directory. Contract: tools/page/run_view.h.
#include "tools/page/run_view.h"

#include <algorithm>
#include <ctime>
#include <set>

#include "core/error.h"
#include "core/io/file.h"
#include "core/text/shell_word.h"
#include "tools/checkpoint/resume.h"
#include "tools/checkpoint/run_folder.h"
#include "tools/config/config.h"
#include "tools/predict/explanation.h"
#include "tools/report/run_costs.h"
#include "tools/report/run_reader.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

Json json_of(const fs::path& file) { return is_there(file) ? read_json_file(file) : Json(); }

void read_step(RunView& view) {
  if (!is_there(view.folder / "trace.rank0.json")) {
    const auto asked = view.settings.find("runtime.trace");
    const bool traced = asked != view.settings.end() && asked->second == "true";
    view.no_step = traced ? "the run writes its timeline at its end, which it has not come to"
                          : "train with --trace";
    return;
  }
  try {
    view.step = read_last_step(view.folder, 0);
    if (view.step.step == 0) view.no_step = "trace.rank0.json has no training step";
  } catch (const Error& error) {
    view.no_step = error.what();
  }
}

// The configuration may be that of another version, or name a model that is not on this machine.
void read_what_config_says(RunView& view) {
  try {
    config::TrainConfig config = config::read_config(view.folder / "config.yaml", {});
    if (view.arguments.is_object())
      keep_paths(config, view.arguments.value("working_directory", ""));
    for (const auto& [step, folder] : checkpoints_in(checkpoint_folder(config, view.folder)))
      view.checkpoints.push_back(step);
    FSDP_CHECK(view.ranks() > 0, "the number of ranks is not known");
    view.units = explain_units(config, view.ranks());
  } catch (const std::exception& error) {
    view.no_units = error.what();
  }
}

}  // namespace

int RunView::ranks() const {
  for (const Json* from : {&metrics, &arguments}) {
    if (const auto value = number_at(*from, "/world_size")) return static_cast<int>(*value);
  }
  return 0;
}

double RunView::started() const {
  std::tm parts = {};
  if (!::strptime(text_at(arguments, "started").c_str(), "%Y-%m-%dT%H:%M:%S%z", &parts)) return 0;
  const long offset = parts.tm_gmtoff;  // which timegm() forgets
  return static_cast<double>(::timegm(&parts) - offset);
}

std::string RunView::call() const {
  if (!arguments.is_object() || !arguments.contains("command")) return "";
  std::string out = "fsdp " + arguments.value("command", "train");
  const std::string file = arguments.value("config", "");
  if (!file.empty()) out += " --config " + shell_word(file);
  if (const auto ranks = number_at(arguments, "/local_ranks"); ranks && *ranks > 0)
    out += fmt::format(" --local-ranks {}", *ranks);
  if (const Json* set = arguments.find("set"); set && set->is_array()) {
    for (const Json& each : *set) out += " --set " + shell_word(each.get<std::string>());
  }
  return out;
}

std::string RunView::state(double now) const {
  const RunCondition condition = condition_of(folder, now);
  if (const auto& end = condition.end) {
    return end->status == 0 ? "ended" + (end->cause.empty() ? "" : ": " + end->cause)
                            : fmt::format("ended with status {}: {}", end->status, end->cause);
  }
  if (condition.state == RunState::kKilled && !end_in_sweep.empty()) return end_in_sweep;
  const double seen = number_at(progress, "/seen").value_or(0);
  if (seen <= 0) return fmt::format("{}: no finished step is known", name_of(condition.state));
  const auto all = number_at(arguments, "/max_steps");
  return fmt::format("{}: step {}{} finished, at {}, {:.0f} s before this page was made",
                     name_of(condition.state), number_at(progress, "/step").value_or(0),
                     all ? fmt::format(" of {}", *all) : "", utc_text(seen),
                     std::max(0.0, now - seen));
}

RunView read_run_view(const fs::path& folder) {
  FSDP_CHECK(fs::is_directory(folder), "{}: no such folder", folder.string());
  FSDP_CHECK(is_run_folder(folder),
             "{}: expected config.yaml and run_args.json, of a run, or table.json, of a sweep",
             folder.string());
  RunView view = {.folder = folder, .name = folder.filename().string()};
  view.settings = read_settings(folder / "config.yaml");
  view.metrics = json_of(folder / "metrics.json");
  view.arguments = json_of(folder / "run_args.json");
  if (const auto progress = progress_so_far(folder / "progress.json"))
    view.progress = to_json(*progress);
  view.log = read_run_log(folder / "metrics.jsonl");
  read_step(view);
  read_what_config_says(view);
  return view;
}

std::vector<std::string> distinct_names(const std::vector<fs::path>& folders) {
  std::vector<fs::path> whole;
  for (const fs::path& folder : folders) {
    fs::path path = fs::absolute(folder).lexically_normal();
    whole.push_back(path.has_filename() ? path : path.parent_path());
  }
  std::vector<std::string> names(whole.size());
  for (int parts = 1; parts < 64; ++parts) {
    for (size_t i = 0; i < whole.size(); ++i) {
      fs::path end = whole[i].filename(), rest = whole[i].parent_path();
      for (int more = 1; more < parts && rest.has_filename(); ++more, rest = rest.parent_path())
        end = rest.filename() / end;
      names[i] = end.string();
    }
    if (std::set(names.begin(), names.end()).size() == std::set(whole.begin(), whole.end()).size())
      break;
  }
  return names;
}

}  // namespace fsdp::tools
