// What must be there, and is not.
// Requirements: S1.23.
#include "tools/doctor/expectations.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools::doctor {
namespace {

TEST_CASE("expectations: a list of names and numbers") {
  const std::vector<Expectation> list = parse_expectations("gpus=8,nic_gbit=2.5");
  REQUIRE(list.size() == 2);
  CHECK(list[0].name == "gpus");
  CHECK(list[0].least == 8);
  CHECK(list[1].least == 2.5);
  CHECK(parse_expectations("").empty());
  CHECK(test::error_of([] { parse_expectations("gpu=8"); }) ==
        "expected one of " + expectation_names() + ", got \"gpu\"");
  CHECK(expectation_names().starts_with("gpus, ranks, hosts, "));
  for (const char* wrong :
       {"gpus", "gpus=", "gpus=x", "gpus=8x", "gpus=0", "gpus=-1", "gpus=nan"}) {
    CAPTURE(wrong);
    CHECK(test::error_of([&] {
            parse_expectations(wrong);
          }).starts_with("expected a number above 0 behind gpus="));
  }
}

TEST_CASE("expectations: an absence fails, a lower number fails, on each host that has it") {
  std::vector<HostReport> hosts = {
      {"a",
       {{.name = "GPUs", .value = "none: no driver", .number = 0},
        {.name = "open files",
         .value = "1024",
         .state = State::kWarn,
         .fix = "own",
         .number = 1024}}},
      {"b", {{.name = "GPUs", .value = "8 x GPU", .fix = "more of them", .number = 8}}}};
  demand(parse_expectations("gpus=8,open_files=2000,memory_gib=1"), hosts);
  CHECK(hosts[0].checks[0].state == State::kFail);
  CHECK(hosts[0].checks[0].value == "none: no driver; expected gpus=8");
  CHECK(hosts[0].checks[0].fix ==
        "srun --gpus-per-node=8 ...   # docker run --gpus all; nvidia-smi -L");
  CHECK(hosts[0].checks[1].state == State::kFail);
  CHECK(hosts[0].checks[1].fix == "own");
  CHECK(hosts[1].checks[0].state == State::kOk);
  CHECK(hosts[1].checks[0].fix.empty());
}

TEST_CASE("expectations: every name has a check that mends it in one line") {
  std::istringstream names(expectation_names());
  for (std::string name; names >> name;) {
    if (name.ends_with(',')) name.pop_back();
    CAPTURE(name);
    for (const char* check : {"GPUs", "ranks", "hosts", "CPU", "memory", "open files", "memlock",
                              "/dev/shm", "network", "NVLink", "NUMA", "folder write"}) {
      std::vector<HostReport> hosts = {{"a", {{.name = check, .value = "none"}}}};
      demand(parse_expectations(name + "=3"), hosts);
      const Check& demanded = hosts[0].checks[0];
      if (demanded.state == State::kOk) continue;
      CHECK_FALSE(demanded.fix.empty());
      CHECK(demanded.fix.find_first_of("{}\n") == std::string::npos);
    }
  }
}

}  // namespace
}  // namespace fsdp::tools::doctor
