// Keys, help and values of LaunchOptions: the part of the list of options that other commands than
// train have, too. Not here: the members (launch_options.h), what the list says of an option
// (option_field.h). Visitors: tools/config, tools/commands/listed_flags.cpp.
#pragma once

#include "tools/launch/launch_options.h"
#include "tools/launch/option_field.h"

namespace fsdp::tools {

template <typename V>
void visit(V& v, LaunchOptions& c) {
  v.field("backend", c.backend, "what computes: auto (a GPU if there is one), cpu, cuda",
          {.values = {"auto", "cpu", "cuda"}, .flag_of = FlagOf::kComputing});
  v.field("threads", c.threads,
          "threads of a rank; 0, the default: OMP_NUM_THREADS, or where it is not set usable cores "
          "divided by the ranks that share them",
          {.range = from_to(0, 1024), .flag_of = FlagOf::kComputing, .of_rank = true});
  v.field("share_gpus", c.share_gpus, "several ranks may use one GPU",
          {.flag_of = FlagOf::kCollectives});
  v.field("gpu_transport", c.gpu_transport,
          "between GPUs: auto (NCCL where each rank has its own), nccl, host",
          {.values = {"auto", "nccl", "host"}, .flag_of = FlagOf::kTransport});
  v.field("nccl_ctas", c.nccl_ctas,
          "multiprocessors of a GPU that a collective may take; products leave twice as many free, "
          "for two at once; 0, the default: NCCL and cuBLASLt choose",
          {.range = from_to(0, 64), .flag_of = FlagOf::kCollectives});
  v.field("attention", c.attention,
          "on a GPU: auto (cuDNN where it is installed and supports the case), cudnn (an error "
          "where it "
          "does not), own",
          {.values = {"auto", "cudnn", "own"}, .flag_of = FlagOf::kKernels});
  v.field("tf32", c.tf32, "allow TF32 operands (11 bits) in f32 matrix products on a GPU",
          {.flag_of = FlagOf::kKernels, .on_resume = OnResume::kRefused});
  v.field("matmul_choice", c.matmul_choice,
          "how a GPU's matrix-product algorithm is chosen: heuristic (cuBLASLt's first), timed "
          "(the fastest of its first 8, "
          "kept in .cache/matmul)",
          {.values = {"heuristic", "timed"}, .flag_of = FlagOf::kKernels});
  v.field("timeout_s", c.timeout_s, "how long a rank waits for another one that makes no progress",
          {.range = from(1)});
  v.field("storage_timeout_s", c.storage_timeout_s,
          "how long one call of the file system may last, such as a write", {.range = from(1)});
  v.field("heartbeat_s", c.heartbeat_s,
          "a process that gives no sign of life for so long ends the job; 0: not watched",
          {.range = from_to(0, 86400)});
  v.field("grace_s", c.grace_s,
          "of train: how long after a signal the run may take to its end; 0: as long as it takes",
          {.range = from_to(0, 86400)});
  v.field(
      "end_time", c.end_time,
      "of train: when the job's time is over (Unix time); a checkpoint and status 75 come before; "
      "0, the default: what Slurm says",
      {.range = from(0), .on_resume = OnResume::kOwn});
  v.field("shared_memory", c.shared_memory, "between ranks of one host");
  v.field("shared_memory_limit_mib", c.shared_memory_limit_mib, "auto: what memory is free",
          {.range = from(0), .needs = {{c.shared_memory, "without runtime.shared_memory"}}});
}

// Keys of the section `launch`.
template <typename V>
void visit_network(V& v, LaunchOptions& c) {
  v.field("interface", c.interface,
          "network cards that MPI and NCCL use between hosts: eth0 or ib0,eth0; empty: they choose",
          {.flag_of = FlagOf::kCollectives});
}

}  // namespace fsdp::tools
