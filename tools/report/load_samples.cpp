// Samples as text, and their sums.
#include "tools/report/load_samples.h"

#include <algorithm>
#include <cmath>

#include "comm/exchange.h"

namespace fsdp::tools {
namespace {

constexpr double kMiB = 1 << 20;

constexpr std::array<const char*, kQuantities> kColumns = {"cpu_%",
                                                           "process_cpu_%",
                                                           "rss_MiB",
                                                           "ram_used_MiB",
                                                           "ram_total_MiB",
                                                           "gpu_%",
                                                           "gpu_allocated_MiB",
                                                           "gpu_reserved_MiB",
                                                           "gpu_used_MiB",
                                                           "gpu_total_MiB",
                                                           "gpu_W",
                                                           "pcie_received_MiB_per_s",
                                                           "pcie_sent_MiB_per_s"};

std::optional<double> mebibytes(std::optional<double> bytes) {
  if (bytes) *bytes /= kMiB;
  return bytes;
}

}  // namespace

// ---------------------------------------------------------------------------- One sample

std::string sample_header() { return csv_header(kColumns); }

Sample host_sample(const HostCounters& before, const HostCounters& now, double seconds,
                   int64_t ticks_per_s) {
  const HostLoad load = load_between(before, now, seconds, ticks_per_s);
  Sample sample;
  sample[kCpu] = load.cpu;
  sample[kProcessCpu] = load.process;
  sample[kResident] = now.resident / kMiB;
  sample[kRamUsed] = now.memory_used / kMiB;
  sample[kRamTotal] = now.memory_total / kMiB;
  return sample;
}

void add_gpu(Sample& sample, const cuda::DeviceLoad& load, size_t allocated) {
  sample[kGpu] = load.utilisation;
  sample[kGpuAllocated] = static_cast<double>(allocated) / kMiB;
  sample[kGpuReserved] = mebibytes(load.memory_pool);
  sample[kGpuUsed] = mebibytes(load.memory_used);
  sample[kGpuTotal] = mebibytes(load.memory_total);
  sample[kGpuPower] = load.power_w;
  sample[kPcieReceived] = mebibytes(load.pcie_received);
  sample[kPcieSent] = mebibytes(load.pcie_sent);
}

// ---------------------------------------------------------------------------- Sums

void SampleSums::add(const SampleSums& other) {
  for (size_t i = 0; i < kQuantities; ++i) {
    of[i].count += other.of[i].count;
    of[i].sum += other.of[i].sum;
    of[i].squares += other.of[i].squares;
  }
}

std::optional<Moments> SampleSums::moments(Quantity quantity) const {
  const Sum& sum = of[quantity];
  if (sum.count == 0) return std::nullopt;
  const double mean = sum.sum / sum.count;
  // Of equal samples the difference may be a little below 0.
  const double variance = std::max(sum.squares / sum.count - mean * mean, 0.0);
  return Moments{mean, std::sqrt(variance)};
}

SampleSums sums_of_ranks(comm::Communicator& world, const SampleSums& mine) {
  SampleSums all;
  for (const SampleSums& each : comm::exchange_values(world, mine)) all.add(each);
  return all;
}

}  // namespace fsdp::tools
