// Times the calls of a step on a backend that has memory, by its trace: the same kernel on tensors
// of the same extents.
//
// [Note: cold memory] A step seldom finds in a cache what it reads: by the time that it comes back
// to a weight it has touched hundreds of megabytes. A call that is repeated on the same tensors
// would. So tensors come from a block of memory that is larger than the caches, each call's tensors
// behind the tensors of the call before; only activations next to a product stay where they are
// (kernels/meta/kernel_call.cpp, [Note: what comes from memory]).
// Not here: what is made of the times (call_rates.h).
#pragma once

#include <filesystem>
#include <map>
#include <tuple>
#include <vector>

#include "tools/predict/call_rates.h"

namespace fsdp::tools {

struct CallMeterOptions {
  size_t cache_bytes = 64u << 20;  // more than the last cache has
  size_t most_bytes = 1u << 30;    // of the tensors of a call
  double seconds_each = 0.1;       // of a call, over its repetitions, unless one takes longer
  double seconds_all = 30;         // then no new calls
};

class CallMeter {
 public:
  CallMeter(Backend& backend, CallMeterOptions options = {});

  // The least of some repetitions: what else the machine does only adds to it. They go on until
  // three are near the least, or five times as long. Nothing when it would take too much memory or
  // time.
  std::optional<double> measure(const meta::KernelCall& call);
  // One repetition, for whoever spreads them over a run. Nothing as above. Waits.
  std::optional<double> time_once(const meta::KernelCall& call);
  // Whether something else took time from what was measured: too many calls had no three
  // repetitions near the least, or the first call takes another time now.
  bool was_disturbed();
  // The blocks are overwritten by what is timed: puts moderate numbers there again.
  void refill();
  // The host of this backend is the same machine: what one of them computes the other waits for.
  bool is_host() const { return backend_.host_reaches_memory(); }

 private:
  class Tensors;
  struct Block {
    Tensor memory;
    size_t next = 0;
    Tensor take(const meta::TensorForm& form);
  };
  bool too_large(const meta::KernelCall& call);
  void make_room(size_t stays, size_t rotates);
  Tensor special(const meta::TensorForm& form);

  Backend& backend_;
  CallMeterOptions options_;
  double spent_s_ = 0;
  int64_t measured_ = 0, unsettled_ = 0;  // calls
  std::optional<meta::KernelCall> first_;
  double first_s_ = 0;
  Block near_, far_;  // of tensors that stay; that come from memory
  using SpecialKey = std::tuple<TensorRole::Content, DType, std::vector<int64_t>, int64_t>;
  std::map<SpecialKey, Tensor> special_;  // that hold more than numbers
};

// What this backend reaches: a copy of more than the caches, and products. Links between ranks are
// not measured (tools/bench/comm_bench.h does): inside a node they have memory's rate, between
// nodes 10 Gbit/s.
Rates measured_machine(CallMeter& meter, const std::string& name);

// ---- How fast this machine's disk takes and gives the state of `fsdp.offload: nvme`.

struct DiskRates {
  LinkRate read, write;
};
// Of a state file of `bytes` in the folder (core/io/state_file.h), of which nothing is left:
// written and read in pieces as a run does it, past the system's cache where the system lets it.
// Error when it cannot be written.
DiskRates measure_disk(const std::filesystem::path& folder, size_t bytes = size_t{256} << 20);

}  // namespace fsdp::tools
