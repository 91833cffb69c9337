// What lies in memory at a moment that is known only later.
#include "kernels/meta/block_log.h"

#include <doctest/doctest.h>

namespace fsdp::meta {
namespace {

TEST_CASE("block log: what was there after so many entries, the largest first") {
  BlockLog log;
  log.taken(1, 100, MemoryCategory::kActivation, "blocks.0");
  log.taken(2, 5000, MemoryCategory::kGradient, "root");
  log.kernel("matmul");
  log.kernel("add");
  const size_t then = log.size();
  log.given_back(2);
  log.taken(2, 1000, MemoryCategory::kWorkspace, "");
  const auto before = log.there_after(then), after = log.there_after(log.size());
  REQUIRE(before.size() == 2);
  CHECK(before[0].bytes == 5120);
  CHECK(before[0].category == MemoryCategory::kGradient);
  CHECK(before[0].unit == "root");
  CHECK(before[0].kernel == "matmul");
  CHECK(before[1].bytes == 512);
  REQUIRE(after.size() == 2);
  CHECK(after[0].bytes == 1024);
  CHECK(after[0].kernel == "");  // none came after it
  CHECK(log.there_after(0).empty());
}

}  // namespace
}  // namespace fsdp::meta
