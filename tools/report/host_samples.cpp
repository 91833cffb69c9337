// Counters become rates.
#include "tools/report/host_samples.h"

namespace fsdp::tools {
namespace {

constexpr double kMiB = 1 << 20;

constexpr std::array<const char*, kHostQuantities> kColumns = {"cpu_%",
                                                               "load",
                                                               "ram_available_MiB",
                                                               "swap_used_MiB",
                                                               "cpu_stalled_%",
                                                               "memory_stalled_%",
                                                               "io_stalled_%",
                                                               "net_received_MiB_per_s",
                                                               "net_sent_MiB_per_s",
                                                               "infiniband_received_MiB_per_s",
                                                               "infiniband_sent_MiB_per_s",
                                                               "tcp_retransmitted_per_s",
                                                               "disk_read_MiB_per_s",
                                                               "disk_written_MiB_per_s"};

}  // namespace

std::string host_header() { return csv_header(kColumns); }

HostSample sample_of_host(const HostActivity& before, const HostActivity& now, double seconds,
                          std::optional<double> cpu) {
  using Number = HostActivity::Number;
  const auto in_MiB = [](Number bytes) { return bytes ? Number(*bytes / kMiB) : bytes; };
  const auto rate = [&](Number HostActivity::*counter, double unit) -> Number {
    const Number &from = before.*counter, &to = now.*counter;
    if (!from || !to || *to < *from || seconds <= 0) return {};
    return (*to - *from) / seconds / unit;
  };
  constexpr double kPercent = 0.01;
  HostSample sample;
  sample[kHostCpu] = cpu;
  sample[kHostLoad] = now.load;
  sample[kHostAvailable] = in_MiB(now.memory_available);
  sample[kHostSwapUsed] = in_MiB(now.swap_used);
  sample[kHostCpuStalled] = rate(&HostActivity::cpu_stalled, kPercent);
  sample[kHostMemoryStalled] = rate(&HostActivity::memory_stalled, kPercent);
  sample[kHostIoStalled] = rate(&HostActivity::io_stalled, kPercent);
  sample[kHostReceived] = rate(&HostActivity::received, kMiB);
  sample[kHostSent] = rate(&HostActivity::sent, kMiB);
  sample[kHostInfinibandReceived] = rate(&HostActivity::infiniband_received, kMiB);
  sample[kHostInfinibandSent] = rate(&HostActivity::infiniband_sent, kMiB);
  sample[kHostRetransmitted] = rate(&HostActivity::retransmitted, 1);
  sample[kHostRead] = rate(&HostActivity::read, kMiB);
  sample[kHostWritten] = rate(&HostActivity::written, kMiB);
  return sample;
}

}  // namespace fsdp::tools
