// The hosts of a job, as ranks of this one: who speaks, and what does not answer.
// Requirements: S1.23.
#include "tools/doctor/doctor.h"

#include <algorithm>
#include <mutex>
#include <set>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools::doctor {
namespace {

// Of every rank.
std::vector<std::string> json_of_ranks(int ranks, const DoctorOptions& options) {
  std::vector<std::string> all;
  std::mutex mutex;
  comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
    const std::string mine = to_json(examine(world, options)).dump();
    const std::lock_guard lock(mutex);
    all.push_back(mine);
  });
  return all;
}

// The first case: the looks that it leaves behind end before the last one does.
TEST_CASE("doctor: a look that does not answer fails, and the table comes") {
  const test::TempFolder folder;
  const Json report = Json::parse(json_of_ranks(2, {.program = "fsdp",
                                                    .folder = folder / "nowhere",
                                                    .expected = {},
                                                    .limit = std::chrono::milliseconds(0)})[0]);
  const Json& checks = report.at("hosts")[0].at("checks");
  const auto silent = std::ranges::count_if(checks.begin(), checks.end(), [](const Json& check) {
    return check.at("value").text() == "no answer within 0 s";
  });
  CHECK(silent >= 1);  // the others were read in no time
}

TEST_CASE("doctor: ranks of one host are one host, and know the same") {
  const test::TempFolder folder;
  const std::vector<std::string> all = json_of_ranks(
      3, {.program = "fsdp", .folder = folder.path(), .expected = parse_expectations("ranks=4")});
  REQUIRE(all.size() == 3);
  CHECK(std::set<std::string>(all.begin(), all.end()).size() == 1);
  const Json hosts = Json::parse(all[0]).at("hosts");
  REQUIRE(hosts.size() == 1);
  std::set<std::string> names;
  for (const Json& check : hosts[0].at("checks")) {
    const std::string name = check.at("name").text();
    CAPTURE(name);
    CHECK(names.insert(name).second);
    CHECK((check.at("state").text() == "ok") == check.at("fix").text().empty());
    if (name == "ranks") CHECK(check.at("value").text() == "3; expected ranks=4");
    if (name == "hosts") CHECK(check.at("value").text() == "1");
  }
  for (const char* name :
       {"program", "GPUs", "driver", "MPI", "memlock", "/dev/shm", "folder lock"}) {
    CHECK(names.contains(name));
  }
  CHECK_FALSE(names.contains("clock"));
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("doctor: a folder that is not there is one failed check") {
  const test::TempFolder folder;
  const Json report = Json::parse(
      json_of_ranks(2, {.program = "fsdp", .folder = folder / "nowhere", .expected = {}})[0]);
  int of_folder = 0;
  for (const Json& check : report.at("hosts")[0].at("checks")) {
    if (!check.at("name").text().starts_with("folder")) continue;
    ++of_folder;
    CHECK(check.at("state").text() == "fail");
    CHECK(test::contains(check.at("value").text(), "nowhere"));
    CHECK(test::contains(check.at("fix").text(), "--folder"));
  }
  CHECK(of_folder == 1);
}

}  // namespace
}  // namespace fsdp::tools::doctor
