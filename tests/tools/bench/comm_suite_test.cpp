// The folder of a suite of collectives: its sizes, its three files, and that it overwrites nothing.
// Requirements: S3.16.
#include <doctest/doctest.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"
#include "tools/bench/comm_gate.h"

namespace fsdp::tools {
namespace {

using comm::Collective;

CommResult result_of(Collective collective, int64_t bytes, double seconds) {
  return {{.collective = collective, .bytes = bytes}, {seconds, seconds, seconds, seconds}, 0, 4};
}

const SuiteMeta kMeta = {.date = "2026-11-23T18:00:00Z",
                         .commit = "0123abc",
                         .machines = {"a, CPU", "a, CPU", "b, CPU", "b, CPU"},
                         .transport = "mpi",
                         .memory = "cpu",
                         .threads = 2,
                         .timing = suite_timing()};

}  // namespace

TEST_CASE("comm suite: every collective from 32 MiB to 1 GiB, doubling") {
  const std::vector<CommCase> cases = expand(suite_cases());
  CHECK(cases.size() == 4 * 6);
  int64_t expected = int64_t{32} << 20;
  for (size_t i = 0; i < 6; ++i, expected *= 2) CHECK(cases[i].bytes == expected);
  CHECK(cases[5].bytes == int64_t{1} << 30);
  for (size_t i = 0; i < cases.size(); ++i) {
    CHECK(cases[i].dtype == DType::kF32);
    CHECK(cases[i].collective == static_cast<Collective>(i / 6));
  }
}

// 4 ranks: all_reduce carries 2 x 3/4 of its bytes over a link, all_gather 3/4, broadcast all.
TEST_CASE("comm suite: rows and the table have the bandwidths of nccl-tests' formula") {
  const std::vector<CommResult> results = {result_of(Collective::kAllReduce, 1'000'000'000, 0.5),
                                           result_of(Collective::kAllGather, 1'000'000'000, 0.5),
                                           result_of(Collective::kBroadcast, 500'000'000, 0.5)};
  const std::string csv = csv_of(results);
  CHECK(test::contains(csv, "collective,op,dtype,buffer,ranks,bytes,us_least,us_median,"));
  CHECK(test::contains(csv,
                       "\nall_reduce,sum,f32,communicator,4,1000000000,500000.0,500000.0,"
                       "500000.0,2.0000,3.0000,0\n"));
  CHECK(test::contains(csv, ",2.0000,1.5000,0\n"));
  CHECK(test::contains(csv, "\nbroadcast,,f32,"));
  const std::string table = bandwidth_table(results);
  CAPTURE(table);
  CHECK(test::contains(table, "all_reduce sum f32"));
  CHECK(test::contains(
      table, fmt::format("\n{:>12}  {:>22}  {:>22}  {:>22}\n", 500000000, "-", "-", "1.000")));
  CHECK(test::contains(
      table, fmt::format("\n{:>12}  {:>22}  {:>22}  {:>22}\n", 1000000000, "3.000", "1.500", "-")));
}

TEST_CASE("comm suite: what was measured on what, the mean, and the verdict") {
  const test::TempFolder parent;
  const std::filesystem::path folder = parent / "new/suite";
  CommSuite suite(folder, kMeta);
  const std::string meta = read_file(folder / "meta.txt");
  for (const char* line : {"date: 2026-11-23T18:00:00Z\n", "commit: 0123abc\n", "ranks: 4\n",
                           "transport: mpi\n", "memory: cpu\n", "rank 3: b, CPU\n"}) {
    CHECK(test::contains(meta, line));
  }
  suite.add(result_of(Collective::kAllReduce, 1'000'000'000, 0.5));
  suite.add(result_of(Collective::kAllGather, 1'000'000'000, 0.5));
  const std::string csv = read_file(folder / "results.csv");
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 3);
  suite.finish({});
  const std::string summary = read_file(folder / "summary.txt");
  CHECK(test::contains(summary, "# Avg bus bandwidth    : 2.2500\npassed\n"));
  CHECK(test::contains(summary, "2 (n - 1) / n"));
  suite.finish({46, "too slow"});
  CHECK(test::contains(read_file(folder / "summary.txt"), "\nstatus 46: too slow\n"));
  const std::string error = test::error_of([&] { CommSuite(folder, kMeta); });
  CHECK(test::contains(error, "has the results of another suite; expected a new folder"));
  parent.write("file", "");
  CHECK(test::contains(test::error_of([&] { CommSuite(parent / "file/x", kMeta); }),
                       "cannot be made"));
}

}  // namespace fsdp::tools
