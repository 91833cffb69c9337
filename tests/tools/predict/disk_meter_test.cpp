// A file that is written, read and gone.
#include "tools/predict/disk_meter.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {

TEST_CASE("disk meter: rates of a folder, and nothing is left in it") {
  const test::TempFolder folder;
  const DiskRates rates = measure_disk(folder.path(), (size_t{3} << 20) + 5);
  for (const LinkRate& rate : {rates.read, rates.write}) {
    CHECK(rate.bytes_per_s > 1e5);
    CHECK(rate.bytes_per_s < 1e12);
  }
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("disk meter: a folder that is missing is named") {
  CHECK(
      test::contains(test::error_of([] { measure_disk("no such folder", 1); }), "no such folder"));
}

}  // namespace fsdp::tools
