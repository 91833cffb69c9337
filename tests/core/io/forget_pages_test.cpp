// Pages of a mapped file that are forgotten, by what the kernel counts (RssFile of
// /proc/self/status).
#include "core/io/forget_pages.h"

#include <fstream>
#include <numeric>
#include <string>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp {
namespace {

// Of pages of files, KiB.
int64_t resident_of_files() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssFile:")) return std::stoll(line.substr(8));
  }
  return -1;
}

uint64_t sum_of(const MappedFile& file) {
  const std::string_view text = file.text();
  return std::accumulate(text.begin(), text.end(), uint64_t{0},
                         [](uint64_t sum, char c) { return sum * 31 + static_cast<uint8_t>(c); });
}

TEST_CASE("forgotten pages do not count, and are read again") {
  const test::TempFolder folder;
  std::string content(32 << 20, 'x');
  for (size_t i = 0; i < content.size(); i += 4096) content[i] = static_cast<char>(i >> 12);
  const MappedFile file(folder.write("a", content));
  const int64_t before = resident_of_files();
  const uint64_t sum = sum_of(file);
  const int64_t read = resident_of_files();
  CHECK(read - before > 28 * 1024);
  forget_pages(file);
  CHECK(resident_of_files() - before < 4 * 1024);
  CHECK(sum_of(file) == sum);
  const MappedFile empty(folder.write("b", ""));
  forget_pages(empty);
}

}  // namespace
}  // namespace fsdp
