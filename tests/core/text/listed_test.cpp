// Ten lines at most, and how many more there are.
#include "core/text/listed.h"

#include <doctest/doctest.h>

namespace fsdp {
namespace {

TEST_CASE("listed: each on its line, behind its kind") {
  CHECK(listed({}, "missing") == "");
  CHECK(listed({"a", "b"}, "missing") == "\n  missing: a\n  missing: b");
  CHECK(listed({"a"}) == "\n  a");
}

TEST_CASE("listed: of more than ten the rest is a number") {
  std::string lines;
  for (size_t i = 0; i < kMostListed; ++i) lines += "\n  odd: x";
  CHECK(listed(std::vector<std::string>(10, "x"), "odd") == lines);
  CHECK(listed(std::vector<std::string>(26, "x"), "odd") == lines + "\n  odd: 16 more");
}

}  // namespace
}  // namespace fsdp
