// A thread that samples this machine: how many rows, and what becomes of them.
// Requirements: S3.11.
#include "tools/report/monitor.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <thread>

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

using namespace std::chrono_literals;

int lines_of(const std::filesystem::path& file) {
  const std::string text = read_file(file);
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

// As many ticks in every reading, whatever the machine does.
HostCounters steady(int reading) {
  const auto ticks = static_cast<uint64_t>(reading);
  return {.busy = 40 * ticks, .ticks = 100 * ticks, .process = ticks, .resident = 1};
}

TEST_CASE("monitor: a row for each interval, in the file at once") {
  const test::TempFolder folder;
  std::atomic<int> readings = 0;
  Monitor monitor({.file = folder / "monitor.rank0.csv", .interval = 10ms, .counters = [&] {
                     return steady(++readings);
                   }});
  while (readings < 5) std::this_thread::sleep_for(1ms);
  // The header and three rows; the fourth is being written.
  CHECK(lines_of(folder / "monitor.rank0.csv") >= 4);
  monitor.stop();
  monitor.stop();
  const std::string text = read_file(folder / "monitor.rank0.csv");
  CHECK(text.starts_with(csv_header(rank_columns()) + "\n2"));
  CHECK(test::contains(text, "Z,40.0,"));
  const int rows = lines_of(folder / "monitor.rank0.csv") - 1;
  CHECK(rows == readings - 1);  // the first reading begins the first interval
  CHECK(monitor.sums().of[kCpu].count == rows);
  CHECK(monitor.sums().moments(kCpu)->mean == doctest::Approx(40));
  CHECK(monitor.problem() == "");
}

TEST_CASE("monitor: one rank of a host has a second file, with rates of the host") {
  const test::TempFolder folder;
  std::atomic<int> readings = 0;
  Monitor monitor({.file = folder / "monitor.rank0.csv",
                   .host_file = folder / "monitor.host.a.csv",
                   .interval = 10ms,
                   .counters = [&] { return steady(++readings); },
                   .activity = [] { return HostActivity{.sent = 7, .load = 2.5}; }});
  while (readings < 4) std::this_thread::sleep_for(1ms);
  monitor.stop();
  const std::string text = read_file(folder / "monitor.host.a.csv");
  CHECK(text.starts_with(csv_header(host_columns()) + "\n2"));
  CHECK(test::contains(text, "Z,40.00,2.50,,,,,,,0.00,,,,,\n"));
  CHECK(lines_of(folder / "monitor.host.a.csv") == lines_of(folder / "monitor.rank0.csv"));
  CHECK(monitor.problem() == "");

  Monitor nowhere({.file = folder / "monitor.rank0.csv",
                   .host_file = folder / "missing/monitor.host.a.csv",
                   .interval = 1h});
  nowhere.stop();
  CHECK(test::contains(nowhere.problem(), "missing/monitor.host.a.csv: cannot be written"));
}

TEST_CASE("monitor: a short run has one row, and a run that goes on adds to them") {
  const test::TempFolder folder;
  for (int part = 0; part < 2; ++part) {
    Monitor monitor({.file = folder / "monitor.rank0.csv", .interval = 1h});
    monitor.stop();  // at once: it does not wait for the interval
    CHECK(monitor.sums().of[kResident].count == 1);
    CHECK(monitor.sums().of[kGpu].count == 0);
    CHECK(lines_of(folder / "monitor.rank0.csv") == 2 + part);
  }
}

TEST_CASE("monitor: later a row is the mean of its samples, over all starts of a run") {
  const test::TempFolder folder;
  const auto file = folder / "monitor.rank0.csv";
  std::atomic<int> readings = 0;
  const auto take = [&](int samples, std::chrono::milliseconds later) {
    const int until = readings + 1 + samples;
    uint64_t busy = 0, ticks = 0;
    Monitor monitor(
        {.file = file, .interval = 5ms, .detailed = 10ms, .later = later, .counters = [&] {
           const int reading = ++readings;
           if (reading > until) return HostCounters{.busy = busy, .ticks = ticks};
           busy += 10 * static_cast<uint64_t>(reading % 2), ticks += 100;
           return HostCounters{.busy = busy, .ticks = ticks};
         }});
    while (readings < until) std::this_thread::sleep_for(1ms);
    monitor.stop();
    return monitor.sums().of[kResident].count;
  };
  // Two rows of one sample each, of 0 % and 10 %; then each of four samples, and the rest.
  const auto samples = static_cast<int>(take(8, 20ms));
  CHECK(samples >= 8);
  const std::string text = read_file(file);
  CAPTURE(text);
  CHECK(test::contains(text, "Z,0.0,"));
  CHECK(test::contains(text, "Z,10.0,"));
  CHECK(test::contains(text, "Z,5.0,"));
  const int rows = lines_of(file) - 1;
  CHECK(rows == 2 + (samples - 2 + 3) / 4);
  CHECK(take(8, 1h) >= 8);  // the first rows are there already
  CHECK(lines_of(file) - 1 == rows + 1);
  const auto all = static_cast<int>(take(8, 0ms));
  CHECK(lines_of(file) - 1 == rows + 1 + all);
}

TEST_CASE("monitor: the rest of an interval counts from its half on") {
  const test::TempFolder folder;
  using Clock = std::chrono::steady_clock;
  const auto rows_after = [&](std::chrono::milliseconds rest) {
    std::atomic<int> readings = 0;
    std::atomic<Clock::time_point> first_row = Clock::time_point();
    Monitor monitor({.file = folder / "m.csv", .interval = 400ms, .counters = [&] {
                       first_row = Clock::now();
                       return steady(++readings);
                     }});
    while (readings < 2) std::this_thread::sleep_for(1ms);
    const Clock::time_point began = first_row;
    std::this_thread::sleep_for(rest);
    monitor.stop();
    const auto rows = static_cast<int>(monitor.sums().of[kCpu].count);
    return std::pair(rows, Clock::now() - began);
  };
  CHECK(rows_after(250ms).first >= 2);
  const auto [rows, took] = rows_after(0ms);
  if (took < 200ms) CHECK(rows == 1);  // a machine that is busy with something else may be late
}

TEST_CASE("monitor: without its file it says why, and still has the means") {
  const test::TempFolder folder;
  Monitor monitor({.file = folder / "missing/monitor.rank0.csv", .interval = 1h});
  monitor.stop();
  CHECK(test::contains(monitor.problem(), "missing/monitor.rank0.csv: cannot be written"));
  CHECK(monitor.sums().of[kResident].count == 1);
  CHECK(monitor.sums().moments(kResident)->mean > 0);
}

// The run meets the same, and says so; this thread may not end the process before.
TEST_CASE("monitor: without memory for a row it gives up, and says that rows are missing") {
  const test::TempFolder folder;
  std::atomic<int> asked = 0;
  Monitor monitor({.file = folder / "monitor.rank0.csv", .interval = 5ms, .counters = [&] {
                     if (++asked == 3) throw std::bad_alloc();
                     return read_counters();
                   }});
  for (int i = 0; i < 1000 && asked < 3; ++i) std::this_thread::sleep_for(5ms);
  std::this_thread::sleep_for(50ms);
  monitor.stop();
  CHECK(asked == 3);
  CHECK(monitor.sums().of[kResident].count == 1);
  CHECK(test::contains(monitor.problem(), "monitor.rank0.csv: rows are missing: no memory"));
}

}  // namespace
}  // namespace fsdp::tools
