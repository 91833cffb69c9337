// Contract: tools/sweep/sweep_folder.h.
#include "tools/sweep/sweep_folder.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"
#include "core/io/file.h"
#include "tools/config/key_values.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

// The number of ranks is no key of a configuration.
std::string head_of(const SweepCase& each) { return fmt::format("# ranks: {}\n", each.ranks); }

void check_same(const SweepCase& now, const fs::path& file) {
  const std::string before = read_file(file);
  const std::string head = before.substr(0, before.find('\n') + 1);
  FSDP_CHECK(head == head_of(now),
             "{}: case {}: the number of ranks has changed: {} instead of \"{}\"; a changed "
             "sweep needs another --out",
             file.string(), now.name, now.ranks, head.substr(0, head.find('\n')));
  const auto old_values = config::key_values(config::parse_config(before, file.string(), {}));
  const auto new_values = config::key_values(now.config);
  for (size_t i = 0; i < new_values.size(); ++i) {
    const auto& [key, value] = new_values[i];
    FSDP_CHECK(old_values[i].second == value,
               "{}: case {}: {} was {}, and is {} now; a changed sweep needs another --out",
               file.string(), now.name, key, old_values[i].second, value);
  }
}

}  // namespace

fs::path SweepFolder::config_of(const SweepCase& each) const {
  return folder_ / each.name / "case.yaml";
}

fs::path SweepFolder::run_of(const SweepCase& each, int run, const char* ending) const {
  return folder_ / each.name / fmt::format("run{}{}", run, ending);
}

void SweepFolder::check(const std::vector<SweepCase>& cases) const {
  const bool of_sweep = names_in(folder_).empty() || is_there(folder_ / "table.json") ||
                        std::any_of(cases.begin(), cases.end(), [&](const SweepCase& each) {
                          return is_there(config_of(each));
                        });
  FSDP_CHECK(of_sweep, "{}: already has files, which no sweep has made", folder_.string());
  for (const SweepCase& each : cases) {
    if (is_there(config_of(each))) {
      check_same(each, config_of(each));
    } else {
      FSDP_CHECK(!is_there(run_of(each, 1)), "{}: exists already, and no sweep has made it",
                 run_of(each, 1).string());
    }
  }
}

void SweepFolder::settle(const std::vector<SweepCase>& cases) const {
  check(cases);
  for (const SweepCase& each : cases) {
    if (is_there(config_of(each))) continue;
    make_folders(folder_ / each.name);
    write_file_atomically(config_of(each), head_of(each) + config::to_yaml(each.config));
  }
}

std::optional<FinishedRun> SweepFolder::finished(const SweepCase& each, int run) const {
  const fs::path folder = run_of(each, run);
  if (!is_there(folder / "metrics.json") || !is_there(folder / "config.yaml")) return {};
  try {
    FinishedRun out = read_finished_run(folder);
    if (number_at(out.metrics, "/ended/status") == 0.0) return out;
  } catch (const Error&) {  // the run goes on, and writes them again
  }
  return {};
}

std::optional<Json> SweepFolder::evaluation(const SweepCase& each, int run,
                                            const std::vector<std::string>& arguments) const {
  if (!is_there(run_of(each, run, kEvaluation))) return {};
  try {
    Json out = read_json_file(run_of(each, run, kEvaluation));
    const Json* const of = out.follow("/arguments");
    if (of && *of == Json(arguments)) return out;
  } catch (const Error&) {  // evaluated again
  }
  return {};
}

void SweepFolder::keep_evaluation(const SweepCase& each, int run,
                                  const std::vector<std::string>& arguments,
                                  const fs::path& output) const {
  Json found = read_json_file(output);
  found["arguments"] = Json(arguments);
  write_json_file(run_of(each, run, kEvaluation), found);
  fs::remove(output);
}

void SweepFolder::write_table(const CaseTable& table, const std::string& title,
                              const std::string& question, const std::string& command) const {
  std::string text = fmt::format("# {}\n", title);
  if (!question.empty()) text += question + "\n";
  text += "\n" + markdown(text_table(table)) + "\n";
  for (const std::string& note : notes_of(table)) text += "- " + note + "\n";
  text += fmt::format("\n```sh\n{}\n```\n", command);
  write_file_atomically(folder_ / "table.md", text);
  write_file_atomically(folder_ / "table.csv", csv_of(table));
  Json rows = Json::array();
  for (Json row : json_of(table)) {
    row["question"] = question;
    rows.push_back(row);
  }
  write_json_file(folder_ / "table.json", rows);
}

}  // namespace fsdp::tools
