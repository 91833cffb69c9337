// Numbers in texts of /proc.
#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tools/launch/host_load.h"

namespace fsdp::tools::proc {

TEST_CASE("proc text: numbers up to the first word that is none") {
  CHECK(numbers_in(" 1 22\t3 kB 4") == std::vector<uint64_t>{1, 22, 3});
  CHECK(numbers_in("kB 4").empty());
  CHECK(numbers_in("").empty());
}

TEST_CASE("proc text: of the line with a name, and of none") {
  CHECK(numbers_of_line("a: 1\nab: 2 3\n", "ab:") == std::vector<uint64_t>{2, 3});
  CHECK(numbers_of_line("a: 1\n", "b:").empty());
  CHECK(numbers_of_line("", "b:").empty());
}

TEST_CASE("proc text: a whole file, its first line, and a file that is not there") {
  const test::TempFolder folder;
  folder.write("file", "a\nb");
  CHECK(text_of(folder / "file") == "a\nb");
  CHECK(text_of(folder / "none") == "");
  CHECK(first_line_of(folder / "file") == "a");
  CHECK(first_line_of(folder / "none").empty());
}

}  // namespace fsdp::tools::proc
