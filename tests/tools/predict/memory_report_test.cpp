// The memory table, and what /proc says of this process.
#include "tools/predict/memory_report.h"

#include <vector>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tests/support/tiny_models.h"

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

TEST_CASE("memory report: predicted beside counted, category by category") {
  MemoryReport report;
  const auto index = [](MemoryCategory category) { return static_cast<size_t>(category); };
  report.predicted.peak[index(MemoryCategory::kGradient)] = 3 << 20;
  report.ledger.peak[index(MemoryCategory::kGradient)] = 3 << 20;
  report.predicted.peak[index(MemoryCategory::kActivation)] = 5 << 20;
  report.ledger.peak[index(MemoryCategory::kActivation)] = 5 << 20;
  report.ledger.peak[index(MemoryCategory::kTransportStaging)] = 1 << 20;
  report.predicted.predictable_peak = report.ledger.predictable_peak = 8 << 20;
  report.predicted.scratch = report.ledger.scratch = 2 << 20;
  report.predicted.held_peak = report.ledger.held_peak = 11 << 20;
  report.formula_states = 4 << 20;
  report.process_ledger = 16 << 20;
  report.process_ranks = 2;
  report.resident_growth = 17 << 20;
  const std::string table = format_memory_table(report);
  CHECK(test::contains(table, "gradient                          3.00        3.00\n"));
  CHECK(test::contains(table, "activation                        5.00        5.00\n"));
  CHECK(test::contains(table, "transport staging                    -        1.00\n"));
  CHECK(test::contains(table, "all at once                       8.00        8.00\n"));
  CHECK(test::contains(table, "kernel scratch                    2.00        2.00\n"));
  CHECK(test::contains(table, "gaps between blocks               1.00        1.00\n"));
  CHECK(test::contains(table, "in all                           11.00       11.00\n"));
  CHECK(test::contains(
      table, "of these model states             3.00        3.00   ZeRO's formula, 4.00,"));
  CHECK(test::contains(table,
                       "this process (2 ranks)                       16.00   growth of RSS 17.00"));
  CHECK(!test::contains(table, "workspace"));
  CHECK(!test::contains(table, "trace"));
  report.trace = 5 << 20;
  CHECK(test::contains(format_memory_table(report),
                       "growth of RSS 17.00 MiB, at least 5.00 of them the trace\n"));
  report.at_most = true;
  CHECK(test::contains(format_memory_table(report),
                       "activation                     <= 5.00        5.00\n"));
  report.at_most = false;
  report.on_gpu = true;
  const std::string gpu = format_memory_table(report);
  CHECK(test::contains(gpu, "activation                        5.00        5.00\n"));
  CHECK(test::contains(gpu, "all at once                       8.00        8.00\n"));
  CHECK(test::contains(gpu, "kernels' workspace             <= 1.00        1.00\n"));
}

TEST_CASE("memory report: what a run will take, by phase, and when it takes most") {
  PlacedOptions options = {{.model = test::tiny_llama(3), .max_length = 7}};
  MetaRun run(options, 2);
  run.load(models::from_scratch(0));
  run.steps(4, 7);
  const std::string table = format_predicted_memory(run);
  CHECK(test::contains(table, "memory per rank (MiB)             peak     loading       steps"));
  CHECK(test::contains(table, "  activation "));
  CHECK(test::contains(table, "  workspace "));  // rotary tables
  CHECK(test::contains(table, "  the most: in forward of root\n"));
}

}  // namespace
}  // namespace fsdp::tools
