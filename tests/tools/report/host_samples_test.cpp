// Rates of a host between two moments, and its row.
// Requirements: S3.11.
#include "tools/report/host_samples.h"

#include <doctest/doctest.h>

namespace fsdp::tools {
namespace {

constexpr double kMiB = 1 << 20;

TEST_CASE("host samples: counters become rates, the rest is as it is now") {
  const HostActivity before = {.received = 1 * kMiB,
                               .sent = 0,
                               .infiniband_received = 0,
                               .infiniband_sent = 0,
                               .retransmitted = 10,
                               .read = 0,
                               .written = 3 * kMiB,
                               .cpu_stalled = 5,
                               .memory_stalled = 1,
                               .io_stalled = 0,
                               .load = 9,
                               .memory_available = 1,
                               .swap_used = 1};
  const HostActivity now = {.received = 4 * kMiB,
                            .sent = 1 * kMiB,
                            .infiniband_received = 200 * kMiB,
                            .infiniband_sent = 100 * kMiB,
                            .retransmitted = 13,
                            .read = 5 * kMiB,
                            .written = 4 * kMiB,
                            .cpu_stalled = 6,
                            .memory_stalled = 1,
                            .io_stalled = 0.5,
                            .load = 1.25,
                            .memory_available = 2048 * kMiB,
                            .swap_used = 16 * kMiB};
  const HostSample sample = sample_of_host(before, now, 2, 25);
  CHECK(host_header() ==
        "time,cpu_%,load,ram_available_MiB,swap_used_MiB,cpu_stalled_%,memory_stalled_%,"
        "io_stalled_%,net_received_MiB_per_s,net_sent_MiB_per_s,infiniband_received_MiB_per_s,"
        "infiniband_sent_MiB_per_s,tcp_retransmitted_per_s,disk_read_MiB_per_s,"
        "disk_written_MiB_per_s");
  CHECK(sample_row("now", sample, kHostDigits) ==
        "now,25.00,1.25,2048.00,16.00,50.00,0.00,25.00,1.50,0.50,100.00,50.00,1.50,2.50,0.50");
}

TEST_CASE("host samples: what is not known, has become smaller, or had no time") {
  const HostSample nothing = sample_of_host({}, {}, 1, {});
  for (const auto& value : nothing) CHECK(!value);
  // A card that was taken out.
  CHECK(!sample_of_host({.received = 5}, {.received = 4}, 1, {})[kHostReceived]);
  CHECK(!sample_of_host({.received = 5}, {.received = 5}, 0, {})[kHostReceived]);
  CHECK(!sample_of_host({}, {.received = 5}, 1, {})[kHostReceived]);
  CHECK(sample_of_host({.received = 5}, {.received = 5}, 1, {})[kHostReceived] == 0);
}

}  // namespace
}  // namespace fsdp::tools
