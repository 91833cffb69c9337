// What /proc says, from texts as Linux writes them.
// Requirements: S3.11.
#include "tools/launch/host_load.h"

#include <chrono>
#include <thread>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

constexpr const char* kStat =
    "cpu  100 20 30 800 50 1 2 7 15 4\n"
    "cpu0 50 10 15 400 25 0 1 3 7 2\n"
    "ctxt 12345\n";
constexpr const char* kMeminfo =
    "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:    6000000 kB\n";
// The name holds what could end it; field 8 is -1, as without a terminal.
constexpr const char* kSelf =
    "4711 (a) b (c)) R 17509 17509 2448 0 -1 4194304 100 0 3 0 250 30 0 0 20 0 9 0 7652586 3133440 "
    "512 18446744073709551615 94155405852672 0 0 0 0\n";

TEST_CASE("host load: counters from the texts of /proc") {
  const HostCounters counters = parse_counters(kStat, kMeminfo, kSelf, 4096);
  CHECK(counters.ticks == 100 + 20 + 30 + 800 + 50 + 1 + 2 + 7);  // guests are in the first two
  CHECK(counters.busy == 100 + 20 + 30 + 1 + 2 + 7);              // neither idle nor waiting
  CHECK(counters.process == 250 + 30);
  CHECK(counters.resident == 512 * 4096);
  CHECK(counters.memory_total == 16000000.0 * 1024);
  CHECK(counters.memory_used == 10000000.0 * 1024);
}

TEST_CASE("host load: texts that say nothing, or stop in the middle") {
  for (const std::string& text :
       {std::string(), std::string("cpu"), std::string("4711 (a"), std::string("4711 (a) "),
        std::string("4711 (a) R"), std::string("MemTotal:"), std::string("\n\n")}) {
    CAPTURE(text);
    const HostCounters counters = parse_counters(text, text, text, 4096);
    CHECK(counters.ticks == 0);
    CHECK(counters.process == 0);
    CHECK(counters.resident == 0);
    CHECK(counters.memory_total == 0);
    CHECK(counters.memory_used == 0);
  }
  const test::TempFolder empty;
  CHECK(read_counters(empty.path()).ticks == 0);
}

TEST_CASE("host load: how old this process is") {
  const test::TempFolder proc;
  std::filesystem::create_directory(proc / "self");
  CHECK(process_age_s(proc.path()) == 0);
  proc.write("self/stat", kSelf);  // started after 7652586 ticks
  proc.write("uptime", "76529.86 1000.00\n");
  CHECK(process_age_s(proc.path()) ==
        doctest::Approx(76529.86 - 7652586.0 / static_cast<double>(ticks_per_second())));
  // A start is told in ticks of 10 ms, in which this one may still be.
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  CHECK(process_age_s() > 0);
  CHECK(process_age_s() < 3600);
}

TEST_CASE("host load: between two moments") {
  const HostCounters before = {.busy = 100, .ticks = 1000, .process = 50};
  const HostCounters now = {.busy = 150, .ticks = 1200, .process = 350};
  const HostLoad load = load_between(before, now, 2, 100);
  CHECK(load.cpu == 25);       // 50 of 200 ticks
  CHECK(load.process == 150);  // 3 of 2 seconds: one thread and a half
  CHECK(!load_between(before, before, 0, 100).cpu);
  CHECK(!load_between(before, before, 0, 100).process);
  CHECK(load_between(before, before, 1, 100).process == 0);
  // Waiting that was taken back.
  CHECK(load_between(before, {.busy = 150, .ticks = 1040}, 1, 100).cpu == 100);
}

TEST_CASE("host load: of this machine") {
  const HostCounters counters = read_counters();
  CHECK(counters.ticks >= counters.busy);
  CHECK(counters.busy > 0);
  CHECK(counters.resident > 0);
  CHECK(counters.memory_total > counters.memory_used);
  CHECK(ticks_per_second() > 0);
}

TEST_CASE("host load: the processor's name, and the clock of its fastest core") {
  const CpuInfo info = parse_cpuinfo(
      "processor\t: 0\nmodel name\t: A CPU @ 3 GHz\ncpu MHz\t\t: 2400.5\n\n"
      "processor\t: 1\nmodel name\t: A CPU @ 3 GHz\ncpu MHz\t\t: 3100.25\n");
  CHECK(info.name == "A CPU @ 3 GHz");
  CHECK(info.clock_mhz == 3100.25);
  CHECK(parse_cpuinfo("").name == "unknown CPU");
  CHECK(!parse_cpuinfo("").clock_mhz);
}

}  // namespace
}  // namespace fsdp::tools
