// A job file for PBS or LSF, to begin with: it starts the ranks by `fsdp launch mpirun` on the
// hosts that the batch system gives. Neither system was there to try it. Not here: Slurm, whose
// file does more (slurm_script.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::tools {

enum class BatchSystem : uint8_t { kPbs, kLsf };

struct BatchFile {
  BatchSystem system = BatchSystem::kPbs;
  std::string file;     // its own absolute path
  std::string folder;   // in which the job runs, absolute
  std::string program;  // fsdp
  int ranks = 1;
  int nodes = 1;
  std::string time;                    // as Slurm writes it; "": none
  std::vector<std::string> arguments;  // "train", ...
};
// Error where ranks do not fit the nodes, or the time cannot be read.
std::string batch_file(const BatchFile& job);
// Its first lines: only what begins so may be replaced by another one.
std::string batch_file_mark(BatchSystem system);

}  // namespace fsdp::tools
