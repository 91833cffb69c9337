// Rows of one sample, later of several, and a file that goes on.
#include "tools/report/sample_file.h"

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

using Values = SampleOf<2>;

// Without the times.
std::string rows_of(const std::filesystem::path& path) {
  std::string out;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) out += line.substr(line.find(',')) + "\n";
  return out;
}

TEST_CASE("sample file: rows of one sample, then of the mean of several, over all starts") {
  const test::TempFolder folder;
  const auto path = folder / "samples.csv";
  constexpr std::array<const char*, 2> kColumns = {"a", "b"};
  {
    SampleFile<2> file(path, csv_header(kColumns), 1, /*detailed=*/2, /*later=*/3);
    for (const double value : {1, 2, 3, 4, 8}) file.add(Values{value, std::nullopt});
    file.add(Values{5, 7});
    file.finish();
    CHECK(file.problem() == "");
  }
  CHECK(rows_of(path) == ",a,b\n,1.0,\n,2.0,\n,5.0,\n,5.0,7.0\n");
  SampleFile<2> more(path, csv_header(kColumns), 2, 5, 3);
  for (const double value : {1, 2, 3, 6}) more.add(Values{value, value});
  more.finish();
  CHECK(rows_of(path) == ",a,b\n,1.0,\n,2.0,\n,5.0,\n,5.0,7.0\n,1.00,1.00\n,3.67,3.67\n");
}

TEST_CASE("sample file: a path that cannot be written is a problem, no error") {
  const test::TempFolder folder;
  SampleFile<2> file(folder / "missing/samples.csv", "time,a,b", 1, 1, 1);
  file.add(Values{1, 2});
  file.finish();
  CHECK(test::contains(file.problem(), "missing/samples.csv: cannot be written"));
}

TEST_CASE("sample file: a row, and its time") {
  CHECK(sample_row("now", Values{1.25, std::nullopt}) == "now,1.2,");
  CHECK(sample_row("now", Values{1.25, 0}, 2) == "now,1.25,0.00");
  const std::string time = time_now();
  CHECK(time.size() == std::string("2025-03-01T12:00:00.250Z").size());
  CHECK(time.ends_with("Z"));
}

}  // namespace
}  // namespace fsdp::tools
