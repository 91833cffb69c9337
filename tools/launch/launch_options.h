// How the ranks of a run are started and what computes for them. In the configuration these are
// keys of `runtime`, on the command line flags. A new option: a member, its line in
// launch_fields.h, and the place that uses it.
// Not here: keys, help, values (launch_fields.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::tools {

struct LaunchOptions {
  int local_ranks = 0;  // ranks as threads; 0: what the launcher says, or one. Not a key
  int64_t threads = 0;
  std::string backend = "auto";
  bool share_gpus = false;
  std::string gpu_transport = "auto";
  int64_t nccl_ctas = 0;
  std::string attention = "auto";
  bool tf32 = false;
  std::string matmul_choice = "heuristic";
  int64_t timeout_s = 600;
  int64_t storage_timeout_s = 1800;
  int64_t heartbeat_s = 10;
  int64_t grace_s = 0;
  int64_t end_time = 0;   // of the job, Unix time; 0: what the batch system says
  std::string interface;  // network cards, "ib0,eth0"; "": MPI and NCCL choose. Key of `launch`
  bool shared_memory = true;
  std::optional<int64_t> shared_memory_limit_mib;
  std::vector<std::string> same_on_all;  // for check_same_settings() before the run. Not a key
};

}  // namespace fsdp::tools
