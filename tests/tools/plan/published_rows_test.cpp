// Published steps: the file that the repository has, and files that are wrong.
// Requirements: S2.6.
#include "tools/plan/published_rows.h"

#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

const std::string kHead = fmt::format("{}\n", fmt::join(kRowColumns, ","));
const std::string kRow =
    "a set,H100,8,8,32,4096,32,8,14336,128256,0,8192,2,1,full_shard,8,bf16,f32,full,2.84,\n";

TEST_CASE("published rows: those of the repository") {
  const auto rows = read_published_rows(test::fixture_path("planning"));
  REQUIRE(rows.size() == 420);
  const PublishedRow& first = rows.front();
  CHECK(first.set == "mosaicml_h100");
  CHECK(first.gpus == 512);
  CHECK(first.tied);
  CHECK(first.step_s == doctest::Approx(16.2701));
  CHECK(first.place() == "rows.csv:2");
  CHECK(first.unusable.empty());
  CHECK(first.size() == "8192, 64 + 64 heads, 32768, 50368");
}

TEST_CASE("published rows: columns in any order, a value that is not known") {
  const test::TempFolder folder;
  folder.write("a.csv", kHead + kRow + "\n");
  const std::string unknown =
      "b,H100,8,8,32,4096,32,8,14336,128256,0,,2,1,full_shard,8,bf16,f32,"
      "full,2.84,60.5\r\n";
  folder.write("b.csv", kHead + unknown);
  const auto rows = read_published_rows(folder.path());
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].place() == "a.csv:2");
  CHECK(rows[1].unusable == "seq is not known");
  std::string other = kHead;
  other.replace(0, std::string("set,machine").size(), "machine,set");
  folder.write("c.csv", other + "H100,c" + kRow.substr(std::string("a set,H100").size()));
  CHECK(read_published_rows(folder / "c.csv").front().machine == "H100");
}

TEST_CASE("published rows: what is wrong is named with its file, line and column") {
  const test::TempFolder folder;
  const auto error = [&](const std::string& text) {
    folder.write("a.csv", text);
    const std::string said = test::error_of([&] { read_published_rows(folder / "a.csv"); });
    const size_t at = said.find("a.csv");
    return at == std::string::npos ? said : said.substr(at);
  };
  CHECK(error(kHead) == "a.csv: has no rows");
  CHECK(error("set,machine\n") == "a.csv:1: column gpus is missing");
  CHECK(error("set,set\n") == "a.csv:1: column set appears twice");
  CHECK(error(kHead + "a,b\n") == "a.csv:2: expected 21 cells, got 2");
  std::string bad = kRow;
  bad.replace(bad.find(",8,"), 3, ",x,");
  CHECK(error(kHead + bad) == "a.csv:2: gpus: expected a number above 0, got \"x\"");
  bad.replace(bad.find(",x,"), 3, ",0,");
  CHECK(error(kHead + bad) == "a.csv:2: gpus: expected a number above 0, got \"0\"");
  CHECK(error(kHead + "\"a\"" + kRow) == "a.csv:2: quotes are not read");
  CHECK(test::contains(error("speed\n"), "a.csv:1: unknown column \"speed\"; expected set,"));
  const test::TempFolder empty;
  CHECK(test::contains(test::error_of([&] { read_published_rows(empty.path()); }),
                       "has no .csv file"));
}

}  // namespace
}  // namespace fsdp::tools
