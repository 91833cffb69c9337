// Rows and means of samples; the means of two ranks by hand.
// Requirements: S1.19, S3.11.
#include "tools/report/load_samples.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "comm/local_transport.h"

namespace fsdp::tools {
namespace {

Sample of_cpu(double percent) {
  Sample sample;
  sample[kCpu] = percent;
  return sample;
}

TEST_CASE("samples: a row of a host without a GPU, and of one with it") {
  Sample sample = host_sample({.busy = 100, .ticks = 1000, .process = 50},
                              {.busy = 150,
                               .ticks = 1200,
                               .process = 350,
                               .resident = 3.0 * (1 << 20),
                               .memory_used = 512.0 * (1 << 20),
                               .memory_total = 2048.0 * (1 << 20)},
                              2, 100);
  CHECK(sample_header() ==
        "time,cpu_%,process_cpu_%,rss_MiB,ram_used_MiB,ram_total_MiB,gpu_%,gpu_allocated_MiB,"
        "gpu_reserved_MiB,gpu_used_MiB,gpu_total_MiB,gpu_W,pcie_received_MiB_per_s,"
        "pcie_sent_MiB_per_s");
  CHECK(sample_row("now", sample) == "now,25.0,150.0,3.0,512.0,2048.0,,,,,,,,");
  add_gpu(sample,
          {.utilisation = 75,
           .memory_used = 2048.0 * (1 << 20),
           .memory_total = 8192.0 * (1 << 20),
           .memory_pool = 1024.0 * (1 << 20),
           .power_w = {},  // not measured by this one
           .pcie_received = 1.5 * (1 << 20),
           .pcie_sent = 0},
          size_t{1} << 29);
  const std::string row = sample_row("now", sample);
  CHECK(row == "now,25.0,150.0,3.0,512.0,2048.0,75.0,512.0,1024.0,2048.0,8192.0,,1.5,0.0");
  const std::string header = sample_header();
  CHECK(std::count(row.begin(), row.end(), ',') == std::count(header.begin(), header.end(), ','));
}

TEST_CASE("samples: mean and deviation over the samples of all ranks") {
  // 10, 20 and 30 on one rank, 60 on the other: 120 / 4 = 30, and (100 + 400 + 900 + 3600) / 4 =
  // 1250 is 350 above 30^2. The mean of the ranks' means would be 40.
  comm::run_local_ranks(2, [](comm::Communicator& world) {
    SampleSums mine;
    for (const double percent :
         world.rank() == 0 ? std::vector<double>{10, 20, 30} : std::vector<double>{60}) {
      mine.add(of_cpu(percent));
    }
    const SampleSums all = sums_of_ranks(world, mine);
    const Moments moments = all.moments(kCpu).value();
    CHECK(all.of[kCpu].count == 4);
    CHECK(moments.mean == 30);
    CHECK(moments.deviation == doctest::Approx(18.708286933869708).epsilon(1e-15));
    CHECK(!all.moments(kGpu));  // nobody has one
  });
}

TEST_CASE("samples: equal ones have no deviation") {
  SampleSums sums;
  for (int i = 0; i < 7; ++i) sums.add(of_cpu(0.1));
  CHECK(sums.moments(kCpu)->deviation < 1e-8);
  CHECK(!SampleSums().moments(kCpu));
}

TEST_CASE("samples: the mean of some, of each quantity that is known") {
  SampleSums sums;
  sums.add(of_cpu(10));
  CHECK(sums.means() == of_cpu(10));  // of one, its digits
  sums.add(of_cpu(20));
  CHECK(sums.means()[kCpu] == 15);
  CHECK(!sums.means()[kGpu]);
}

}  // namespace
}  // namespace fsdp::tools
