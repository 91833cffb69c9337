// Samples of a host: what it sends, receives, reads and waits for, all of its processes together.
// One rank of each host takes them. Read next: monitor.h. Not here: the readings themselves
// (tools/launch/host_load.h), samples of a rank (load_samples.h).
#pragma once

#include "tools/launch/host_load.h"
#include "tools/report/sample_file.h"

namespace fsdp::tools {

// The columns of the file behind the time.
enum HostQuantity : size_t {
  kHostCpu,  // %, of all cores
  kHostLoad,
  kHostAvailable,
  kHostSwapUsed,
  kHostCpuStalled,  // %, of the interval
  kHostMemoryStalled,
  kHostIoStalled,
  kHostReceived,  // MiB/s, and so on
  kHostSent,
  kHostInfinibandReceived,
  kHostInfinibandSent,
  kHostRetransmitted,  // segments/s
  kHostRead,
  kHostWritten,
  kHostQuantities
};
using HostSample = SampleOf<kHostQuantities>;
constexpr int kHostDigits = 2;  // behind the point

std::string host_header();  // a line of CSV
// Between two moments. A counter that has become smaller says nothing. `cpu`: see load_between().
HostSample sample_of_host(const HostActivity& before, const HostActivity& now, double seconds,
                          std::optional<double> cpu);

}  // namespace fsdp::tools
