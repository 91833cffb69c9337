// Files with a run's results under the names that another program gives them: what a room must know
// to write such files at the end of a run. Not here: the files (tools/guides), our own (metrics.h).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tools/report/metrics.h"

namespace fsdp::tools {

// Of the configuration; 0: never.
struct RunIntervals {
  int64_t steps = 0;   // of the whole run
  int64_t epochs = 0;  // 0: the run is counted in steps
  int64_t log_every = 0, eval_every = 0, save_every = 0;
  int64_t rows_per_rank = 0;    // of a micro-step
  std::string best_checkpoint;  // its folder; "": none
};

struct ResultFiles {
  std::vector<std::string_view> names;
  // Into the run directory, where metrics.jsonl lies.
  void (*write)(const std::filesystem::path& directory, const RunSummary& summary,
                const RunIntervals& intervals);
};

}  // namespace fsdp::tools
