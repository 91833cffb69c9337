// The folder of one run, runs/<name>-<timestamp>, with everything that says what was run and what
// came of it: run_args.json, config.yaml, metrics.jsonl, metrics.json, model/, trace.rank<r>.json.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace fsdp::tools {

// Error when `wanted` is there already, and when it (empty: the place of the default) lies on a
// file system with fewer bytes free.
void check_run_directory(const std::filesystem::path& wanted, int64_t bytes);
// Rank 0 makes the folder `wanted`, or runs/<name>-<timestamp> when that is empty; all ranks learn
// its path. Collective. A folder that is there already is never taken: `wanted` is an error, behind
// a timestamp "-2", "-3", ... follows.
std::filesystem::path make_run_directory(comm::Communicator& world,
                                         const std::filesystem::path& wanted,
                                         const std::string& name);

// How the program was called and on what, for run_args.json.
struct RunArguments {
  std::string command;                 // "train"
  std::string config;                  // path as given
  std::vector<std::string> overrides;  // --set
  int local_ranks = 0;
  int threads = 1;
};
// From rank 0, with host names of all ranks. Collective.
void write_run_arguments(comm::Communicator& world, const std::filesystem::path& directory,
                         const RunArguments& arguments);

// ---- for tests ----
std::filesystem::path create_numbered(const std::filesystem::path& given);

}  // namespace fsdp::tools
