// A number with its noun.
#include "core/text/counted.h"

#include <doctest/doctest.h>

namespace fsdp {
namespace {

TEST_CASE("counted: one of a noun, or several") {
  CHECK(counted(1, "rank") == "1 rank");
  CHECK(counted(0, "rank") == "0 ranks");
  CHECK(counted(2, "GPU") == "2 GPUs");
  CHECK(counted(3, "pass") == "3 passes");
}

}  // namespace
}  // namespace fsdp
