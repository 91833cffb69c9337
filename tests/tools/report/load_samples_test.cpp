// Rows and means of samples of a rank, and the means of two ranks by hand; rates of a host; files
// of rows.
// Requirements: S1.19, S3.11.
#include "tools/report/load_samples.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "core/io/file.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

Sample of_cpu(double percent) {
  Sample sample;
  sample[kCpu] = percent;
  return sample;
}

TEST_CASE("samples: a row of a host without a GPU, and of one with it") {
  Sample sample = sample_of_rank({.busy = 100, .ticks = 1000, .process = 50},
                                 {.busy = 150,
                                  .ticks = 1200,
                                  .process = 350,
                                  .resident = 3.0 * (1 << 20),
                                  .memory_used = 512.0 * (1 << 20),
                                  .memory_total = 2048.0 * (1 << 20)},
                                 2, 100);
  CHECK(csv_header(rank_columns()) ==
        "time,cpu_%,process_cpu_%,rss_MiB,ram_used_MiB,ram_total_MiB,gpu_%,gpu_allocated_MiB,"
        "gpu_reserved_MiB,gpu_used_MiB,gpu_total_MiB,gpu_W,pcie_received_MiB_per_s,"
        "pcie_sent_MiB_per_s");
  CHECK(sample_row("now", sample, rank_columns().size()) ==
        "now,25.0,150.0,3.0,512.0,2048.0,,,,,,,,");
  add_gpu(sample,
          {.utilisation = 75,
           .memory_used = 2048.0 * (1 << 20),
           .memory_total = 8192.0 * (1 << 20),
           .memory_pool = 1024.0 * (1 << 20),
           .power_w = {},  // not measured by this one
           .pcie_received = 1.5 * (1 << 20),
           .pcie_sent = 0},
          size_t{1} << 29);
  const std::string row = sample_row("now", sample, rank_columns().size());
  CHECK(row == "now,25.0,150.0,3.0,512.0,2048.0,75.0,512.0,1024.0,2048.0,8192.0,,1.5,0.0");
  const std::string header = csv_header(rank_columns());
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

constexpr double kMiB = 1 << 20;
constexpr size_t kReceived = 7;  // its column

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
  const Sample sample = sample_of_host(before, now, 2, 25);
  CHECK(csv_header(host_columns()) ==
        "time,cpu_%,load,ram_available_MiB,swap_used_MiB,cpu_stalled_%,memory_stalled_%,"
        "io_stalled_%,net_received_MiB_per_s,net_sent_MiB_per_s,infiniband_received_MiB_per_s,"
        "infiniband_sent_MiB_per_s,tcp_retransmitted_per_s,disk_read_MiB_per_s,"
        "disk_written_MiB_per_s");
  CHECK(sample_row("now", sample, kMostQuantities, 2) ==
        "now,25.00,1.25,2048.00,16.00,50.00,0.00,25.00,1.50,0.50,100.00,50.00,1.50,2.50,0.50");
}

TEST_CASE("host samples: what is not known, has become smaller, or had no time") {
  const Sample nothing = sample_of_host({}, {}, 1, {});
  for (const auto& value : nothing) CHECK(!value);
  // A card that was taken out.
  CHECK(!sample_of_host({.received = 5}, {.received = 4}, 1, {})[kReceived]);
  CHECK(!sample_of_host({.received = 5}, {.received = 5}, 0, {})[kReceived]);
  CHECK(!sample_of_host({}, {.received = 5}, 1, {})[kReceived]);
  CHECK(sample_of_host({.received = 5}, {.received = 5}, 1, {})[kReceived] == 0);
}

constexpr std::array<const char*, 2> kColumns = {"a", "b"};

// Without the times.
std::string rows_of(const std::filesystem::path& path) {
  std::string out;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) out += line.substr(line.find(',')) + "\n";
  return out;
}

TEST_CASE("sample file: rows of one sample, then of the mean of several, over all starts") {
  const test::TempFolder folder;
  const auto path = folder / "samples.csv";
  {
    SampleFile file(path, kColumns, 1, /*detailed=*/2, /*later=*/3);
    for (const double value : {1, 2, 3, 4, 8}) file.add(Sample{value, std::nullopt});
    file.add(Sample{5, 7});
    file.finish();
    CHECK(file.problem() == "");
  }
  CHECK(rows_of(path) == ",a,b\n,1.0,\n,2.0,\n,5.0,\n,5.0,7.0\n");
  SampleFile more(path, kColumns, 2, 5, 3);
  for (const double value : {1, 2, 3, 6}) more.add(Sample{value, value});
  more.finish();
  CHECK(rows_of(path) == ",a,b\n,1.0,\n,2.0,\n,5.0,\n,5.0,7.0\n,1.00,1.00\n,3.67,3.67\n");
}

TEST_CASE("sample file: a path that cannot be written is a problem, no error") {
  const test::TempFolder folder;
  SampleFile file(folder / "missing/samples.csv", kColumns, 1, 1, 1);
  file.add(Sample{1, 2});
  file.finish();
  CHECK(test::contains(file.problem(), "missing/samples.csv: cannot be written"));
}

TEST_CASE("sample file: a row, and its time") {
  CHECK(sample_row("now", Sample{1.25, std::nullopt}, 2) == "now,1.2,");
  CHECK(sample_row("now", Sample{1.25, 0}, 2, 2) == "now,1.25,0.00");
  const std::string time = time_now();
  CHECK(time.size() == std::string("2025-03-01T12:00:00.250Z").size());
  CHECK(time.ends_with("Z"));
}

}  // namespace
}  // namespace fsdp::tools
