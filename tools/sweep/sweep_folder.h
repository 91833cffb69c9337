// The folder of a sweep: a folder for each case, with its configuration and its runs, and the
// table. It says where a sweep goes on. Nothing is ever removed. Read next: sweep_run.h.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tools/report/case_table.h"
#include "tools/sweep/sweep_cases.h"

namespace fsdp::tools {

// Endings of files next to the directory of a run: what train has said, what eval has found and
// said.
constexpr const char *kTrainLog = ".log", *kEvaluation = ".eval.json", *kEvalLog = ".eval.log";

class SweepFolder {
 public:
  explicit SweepFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  const std::filesystem::path& path() const { return folder_; }
  std::filesystem::path config_of(const SweepCase& each) const;
  // `run`: from 1. With an ending, a file next to the run's directory.
  std::filesystem::path run_of(const SweepCase& each, int run, const char* ending = "") const;

  // Error unless the folder is new or a sweep's, and has each case as it is here, or not at all. It
  // names the first key that differs.
  void check(const std::vector<SweepCase>& cases) const;
  // Writes the configurations of the cases that the folder does not have, after check().
  void settle(const std::vector<SweepCase>& cases) const;
  // A run that has ended with status 0. One whose files cannot be read has not.
  std::optional<FinishedRun> finished(const SweepCase& each, int run) const;
  // What fsdp eval has found with these arguments; none for others. `output`: what it has printed.
  std::optional<Json> evaluation(const SweepCase& each, int run,
                                 const std::vector<std::string>& arguments) const;
  void keep_evaluation(const SweepCase& each, int run, const std::vector<std::string>& arguments,
                       const std::filesystem::path& output) const;
  // table.md, table.csv and table.json. `command`: makes the table again.
  void write_table(const CaseTable& table, const std::string& title, const std::string& question,
                   const std::string& command) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace fsdp::tools
