// Samples of what a rank and its machine do while a run trains: a row of CSV each, and their mean
// and standard deviation over all ranks. Next: host_samples.h, of a host. Not here: who takes them
// (monitor.h), their file (sample_file.h), the names of the means (metrics.h).
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "comm/communicator.h"
#include "kernels/cuda/device_sensors.h"
#include "tools/launch/host_load.h"
#include "tools/report/sample_file.h"

namespace fsdp::tools {

// The columns of the file behind the time.
enum Quantity : size_t {
  kCpu,  // %, of all cores of the host
  kProcessCpu,
  kResident,
  kRamUsed,
  kRamTotal,
  kGpu,  // %, and so on: empty where the CPU computes
  kGpuAllocated,
  kGpuReserved,
  kGpuUsed,
  kGpuTotal,
  kGpuPower,
  kPcieReceived,
  kPcieSent,
  kQuantities
};
using Sample = SampleOf<kQuantities>;

std::string sample_header();  // a line of CSV
Sample host_sample(const HostCounters& before, const HostCounters& now, double seconds,
                   int64_t ticks_per_s);
// `allocated`: bytes that the ledger counts.
void add_gpu(Sample& sample, const cuda::DeviceLoad& load, size_t allocated);

struct Moments {
  double mean = 0, deviation = 0;
};
// Sums of samples, which ranks can add up.
struct SampleSums : SumsOf<kQuantities> {
  using SumsOf::add;
  void add(const SampleSums& other);
  // sqrt(E[x^2] - E[x]^2), of all samples of all ranks; none: there are no samples.
  std::optional<Moments> moments(Quantity quantity) const;
};
// Of all ranks, the same on every rank. Collective.
SampleSums sums_of_ranks(comm::Communicator& world, const SampleSums& mine);

}  // namespace fsdp::tools
