// The folder of one run, runs/<name>-<timestamp>. Its files say what was run and with what result:
// run_args.json, config.yaml, metrics.jsonl, metrics.json, progress.json, model/,
// monitor.rank<r>.csv, monitor.host.<host>.csv, trace.rank<r>.json, and the files of
// tools/guides/result_files.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/io/json.h"
#include "core/io/patience.h"
#include "tools/launch/batch_job.h"

namespace fsdp::tools {

// What a file system itself has in the folder that it is mounted on: lost+found, .snapshot.
bool is_name_of_volume(const std::string& name);
// "", or what is missing for `count` checkpoints, or none. `beside`: bytes that the run needs in
// the same place for something else.
std::string missing_room(const std::filesystem::path& folder, uint64_t bytes_of_one, int64_t count,
                         uint64_t beside);
// Error when the folder `wanted` exists, or when its file system has fewer than `bytes` bytes free.
// An empty `wanted` stands for the default place.
void check_run_directory(const std::filesystem::path& wanted, int64_t bytes);
// Rank 0 makes the folder `wanted` or, when `wanted` is empty, runs/<name>-<timestamp>. All ranks
// learn the path. A folder that exists is never used: it is an error if it was wanted by name, and
// a timestamp gets "-2", "-3", ... appended. Collective.
std::filesystem::path make_run_directory(comm::Communicator& world,
                                         const std::filesystem::path& wanted,
                                         const std::string& name, const IoPatience& patience = {});

// A checkpoint, and the run that has written it.
struct CheckpointOfRun {
  int64_t step = 0;  // 0: none
  std::string path;
  std::string run;  // id
};
Json to_json(const CheckpointOfRun& checkpoint);

// What a run is, under the names that the scripts of the Mistral guide keep in their run_args.json
// and metrics.json, so that a reader of such files reads ours.
struct RunFacts {
  std::string model;    // folder, or what it is
  std::string dataset;  // the training text, as given
  std::string run_name;
  std::string sharding_strategy;
  int64_t max_steps = 0;
  int64_t seq_len = 0;
  int64_t bsz = 0;  // rows of a rank in a micro-step
  int64_t grad_accum = 1;
  double lr = 0;
  int64_t seed = 0;
  std::optional<int64_t> subset_size;  // of the rows; none: all
  bool fsdp = true;                    // something is sharded
  bool bf16 = false;
  bool use_lora = false;
  bool gradient_checkpointing = false;
  std::string cpu;  // the model of rank 0's host
  std::string gpu;  // of rank 0; "": the CPU computes
};
Json to_json(const RunFacts& facts);

// How the program was called, for run_args.json.
struct RunArguments {
  std::string run;                     // an id that the run keeps when it goes on
  std::string command;                 // "train"
  std::string config;                  // path as given
  std::vector<std::string> overrides;  // --set
  int local_ranks = 0;
  int threads = 1;
  int restarts = 0;  // by a launcher
  std::optional<BatchJob> job = {};
  CheckpointOfRun resumed_from;
  // Of a step: rows of all ranks and micro-steps, of a pass (0: not in passes), micro-steps.
  int64_t effective_batch = 0;
  int64_t rows_per_pass = 0;
  int64_t micro_steps = 1;
  RunFacts facts = {};
};
// Rank 0 writes the file, which also has the host names of all ranks. Collective.
void write_run_arguments(comm::Communicator& world, const std::filesystem::path& directory,
                         const RunArguments& arguments, const IoPatience& patience = {});

// ---- for tests ----
std::filesystem::path create_numbered(const std::filesystem::path& given);

}  // namespace fsdp::tools
