// The ledger: rounding, categories, peaks and what stood where at the peak.
#include "core/memory_ledger.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp {
namespace {

constexpr size_t index(MemoryCategory category) { return static_cast<size_t>(category); }

TEST_CASE("sizes are counted in multiples of 512 bytes") {
  CHECK(rounded_bytes(0) == 0);
  CHECK(rounded_bytes(1) == 512);
  CHECK(rounded_bytes(512) == 512);
  CHECK(rounded_bytes(513) == 1024);
  MemoryLedger ledger;
  ledger.add(MemoryCategory::kGradient, 513);
  CHECK(ledger.usage().current[index(MemoryCategory::kGradient)] == 1024);
  ledger.subtract(MemoryCategory::kGradient, 513);
  CHECK(ledger.usage().total_current == 0);
}

TEST_CASE("each category has its own peak; the total's peak remembers its parts") {
  using enum MemoryCategory;
  MemoryLedger ledger;
  ledger.add(kParameterShard, 1024);
  ledger.add(kActivation, 4096);
  ledger.subtract(kActivation, 4096);
  ledger.add(kGradient, 2048);  // total 3072, below the peak of 5120
  const MemoryUsage usage = ledger.usage();
  CHECK(usage.total_current == 3072);
  CHECK(usage.total_peak == 5120);
  CHECK(usage.peak[index(kActivation)] == 4096);
  CHECK(usage.peak[index(kGradient)] == 2048);
  CHECK(usage.at_peak[index(kActivation)] == 4096);
  CHECK(usage.at_peak[index(kGradient)] == 0);
  ledger.reset_peak();
  CHECK(ledger.usage().total_peak == 3072);
  CHECK(ledger.usage().peak[index(kActivation)] == 0);
  CHECK(ledger.usage().at_peak == ledger.usage().current);
}

TEST_CASE("what only a run can know is left out of the sum that predictions are compared with") {
  using enum MemoryCategory;
  MemoryLedger ledger;
  ledger.set_unpredictable(kWorkspace);
  CHECK(!ledger.predictable(kTransportStaging));
  CHECK(ledger.predictable(kActivation));
  ledger.add(kActivation, 1024);
  ledger.add(kTransportStaging, 512);
  ledger.add(kWorkspace, 4096);
  ledger.subtract(kWorkspace, 4096);
  ledger.subtract(kActivation, 512);
  ledger.add(kGradient, 1024);
  CHECK(ledger.usage().predictable_current == 1536);
  CHECK(ledger.usage().predictable_peak == 1536);
  CHECK(ledger.usage().total_peak == 1024 + 512 + 4096);
  ledger.subtract(kGradient, 1024);
  ledger.reset_peak();
  CHECK(ledger.usage().predictable_peak == 512);
}

TEST_CASE("the table names every category that held something, and no other") {
  MemoryLedger ledger;
  CHECK(ledger.table() == "nothing was allocated before\n");
  ledger.add(MemoryCategory::kWorkspace, 3 << 20);
  ledger.subtract(MemoryCategory::kWorkspace, 3 << 20);
  const std::string one = ledger.table();
  CHECK(std::ranges::count(one, '\n') == 3);
  CHECK(test::contains(one, "workspace"));
  CHECK(test::contains(one, "total"));
  CHECK(test::contains(one, "3.00"));
  for (size_t i = 0; i < kMemoryCategories; ++i) ledger.add(static_cast<MemoryCategory>(i), 512);
  for (size_t i = 0; i < kMemoryCategories; ++i) {
    CHECK(test::contains(ledger.table(), name_of(static_cast<MemoryCategory>(i))));
  }
}

}  // namespace
}  // namespace fsdp
