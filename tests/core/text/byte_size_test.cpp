// Numbers of bytes as text.
#include "core/text/byte_size.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp {
namespace {

TEST_CASE("byte size: as a user writes it") {
  const auto parsed = [](const char* text) { return parse_byte_size(text, "size"); };
  CHECK(parsed("5GB") == 5'000'000'000);
  CHECK(parsed("300mb") == 300'000'000);
  CHECK(parsed("2GiB") == int64_t{2} << 30);
  CHECK(parsed("4096") == 4096);
  CHECK(parsed("1.5GiB") == int64_t{3} << 29);
  CHECK(parsed("0.3MB") == 300'000);
  for (const char* bad : {"", "GB", "0GB", "-1GB", "1.5", "0.1", "1e3MB", "infGB", "nan", "5 GB",
                          "5XB", "9999999999TB"}) {
    CHECK(test::error_of([&] {
            parsed(bad);
          }).starts_with("size: expected one like 5GB, 300MB or 2GiB, got \""));
  }
}

TEST_CASE("byte size: as a message says it") {
  CHECK(byte_size_text(0) == "0 bytes");
  CHECK(byte_size_text(1048575) == "1048575 bytes");
  CHECK(byte_size_text(1048576 + 262144) == "1.25 MiB");
  CHECK(byte_size_text(size_t{40} << 30) == "40.00 GiB");
}

}  // namespace
}  // namespace fsdp
