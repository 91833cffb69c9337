// The memory table, and what /proc says of this process.
#include "tools/predict/memory_report.h"

#include <vector>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

TEST_CASE("memory report: the process grows by what it touches") {
  const ProcessMemory before = process_memory();
  CHECK(before.resident > size_t{1} << 20);
  CHECK(before.peak_resident >= before.resident);
  const std::vector<char> touched(size_t{64} << 20, 1);
  CHECK(process_memory().peak_resident >= before.resident + (size_t{48} << 20));
  CHECK(touched.back() == 1);
}

TEST_CASE("memory report: rows with a formula and without") {
  MemoryReport report;
  report.predicted[static_cast<size_t>(MemoryCategory::kGradient)] = 3 << 20;
  report.ledger.peak[static_cast<size_t>(MemoryCategory::kGradient)] = 3 << 20;
  report.ledger.peak[static_cast<size_t>(MemoryCategory::kActivation)] = 5 << 20;
  report.ledger.total_peak = 8 << 20;
  report.process_ledger = 16 << 20;
  report.process_ranks = 2;
  report.resident_growth = 17 << 20;
  const std::string table = format_memory_table(report);
  CHECK(test::contains(table, "gradient                          3.00        3.00\n"));
  CHECK(test::contains(table, "activation                           -        5.00\n"));
  CHECK(test::contains(table,
                       "this process (2 ranks)                       16.00   growth of RSS 17.00"));
  CHECK(!test::contains(table, "workspace"));
  CHECK(!test::contains(table, "trace"));
  report.trace = 5 << 20;
  CHECK(test::contains(format_memory_table(report),
                       "growth of RSS 17.00 MiB, at least 5.00 of them the trace\n"));
  report.upper_bound[static_cast<size_t>(MemoryCategory::kGradient)] = true;
  CHECK(test::contains(format_memory_table(report),
                       "gradient                       <= 3.00        3.00\n"));
}

}  // namespace
}  // namespace fsdp::tools
