// The command that starts the ranks of a job on this host. Read next: parent.h. Not here: what a
// rank finds out about its launcher (tools/launch/launch.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace fsdp::tools {

enum class Launcher : uint8_t {
  kLocal,   // ranks as threads of one process
  kMpirun,  // ranks as processes
};

struct Job {
  Launcher launcher = Launcher::kLocal;
  int ranks = 1;
  std::string program;                 // fsdp
  std::vector<std::string> arguments;  // "train", ...
};

// What of this machine decides the command.
struct JobHost {
  int cores = 1;  // that this process may use
  bool root = false;
  std::vector<std::string> variables;  // names of the environment
};
JobHost this_host();

// The words of the command. `restarts`: the job goes on where it was.
std::vector<std::string> command_of(const Job& job, const JobHost& host, bool goes_on);
// As a shell reads it.
std::string shell_text(const std::vector<std::string>& words);
// Error unless the job can be started again: it is `train` with a runtime.run_dir, which is
// returned.
std::filesystem::path directory_of(const Job& job);

}  // namespace fsdp::tools
