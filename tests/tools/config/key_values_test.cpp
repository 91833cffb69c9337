// ~ at the beginning of a path, and nowhere else.
#include "tools/config/key_values.h"

#include <cstdlib>

#include <doctest/doctest.h>

namespace fsdp::config {
namespace {

TEST_CASE("home folder: ~ stands for it at the beginning of a path") {
  const char* const home = std::getenv("HOME");
  REQUIRE(home != nullptr);
  CHECK(with_home("~") == home);
  CHECK(with_home("~/a b/~") == std::string(home) + "/a b/~");
  for (const char* other : {"", "a/~/b", "~bob/a", "~a", "bytes", "/~"}) {
    CHECK(with_home(other) == other);
  }
}

}  // namespace
}  // namespace fsdp::config
