// How the ranks of a run are started and what computes for them: every option once, with its key,
// help and values. In the configuration these are keys of `runtime`, on the command line flags. A
// new option: a member, its line in visit() below, and the place that uses it.
// Read next: option_field.h. Visitors: tools/config, tools/commands/listed_flags.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/launch/option_field.h"

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
  int64_t heartbeat_s = 10;
  int64_t grace_s = 0;
  bool shared_memory = true;
  std::optional<int64_t> shared_memory_limit_mib;
  std::vector<std::string> same_on_all;  // for check_same_settings() before the run. Not a key
};

template <typename V>
void visit(V& v, LaunchOptions& c) {
  v.field("backend", c.backend, "what computes: auto (a GPU if there is one), cpu, cuda",
          OptionField().one_of({"auto", "cpu", "cuda"}).flag(FlagOf::kComputing));
  v.field("threads", c.threads,
          "threads of a rank; 0, the default: OMP_NUM_THREADS, or where it is not set usable cores "
          "divided by the ranks that share them",
          OptionField().from_to(0, 1024).flag(FlagOf::kComputing).own_of_rank());
  v.field("share_gpus", c.share_gpus, "several ranks may use one GPU",
          OptionField().flag(FlagOf::kCollectives));
  v.field("gpu_transport", c.gpu_transport,
          "between GPUs: auto (NCCL where each rank has its own), nccl, host",
          OptionField().one_of({"auto", "nccl", "host"}).flag(FlagOf::kTransport));
  v.field("nccl_ctas", c.nccl_ctas,
          "multiprocessors of a GPU that a collective may take; products leave twice as many free, "
          "for two at once; 0, the default: NCCL and cuBLASLt choose",
          OptionField().from_to(0, 64).flag(FlagOf::kCollectives));
  v.field("attention", c.attention,
          "on a GPU: auto (cuDNN where it is installed and supports the case), cudnn (an error "
          "where it "
          "does not), own",
          OptionField().one_of({"auto", "cudnn", "own"}).flag(FlagOf::kKernels));
  v.field("tf32", c.tf32, "allow TF32 operands (11 bits) in f32 matrix products on a GPU",
          OptionField().flag(FlagOf::kKernels));
  v.field("matmul_choice", c.matmul_choice,
          "how a GPU's matrix-product algorithm is chosen: heuristic (cuBLASLt's first), timed "
          "(the fastest of its first 8, "
          "kept in .cache/matmul)",
          OptionField().one_of({"heuristic", "timed"}).flag(FlagOf::kKernels));
  v.field("timeout_s", c.timeout_s, "how long a rank waits for another one", OptionField().from(1));
  v.field("heartbeat_s", c.heartbeat_s,
          "a process that gives no sign of life for so long ends the job; 0: not watched",
          OptionField().from_to(0, 86400));
  v.field("grace_s", c.grace_s,
          "of train: how long after a signal the run may take to its end; 0: as long as it takes",
          OptionField().from_to(0, 86400));
  v.field("shared_memory", c.shared_memory, "between ranks of one host");
  v.field("shared_memory_limit_mib", c.shared_memory_limit_mib, "auto: what memory is free",
          OptionField().from(0));
}

}  // namespace fsdp::tools
