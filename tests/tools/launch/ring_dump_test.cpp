// Rings as files, and reports with and without answers from other processes.
#include "tools/launch/ring_dump.h"

#include <chrono>
#include <csignal>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/io/file.h"
#include "core/io/json.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

std::shared_ptr<comm::CollectiveRings> rings_with_a_call() {
  auto rings = std::make_shared<comm::CollectiveRings>();
  const auto ring = rings->add("gather", {0, 1});
  ring->start(ring->issue({.kind = "all_gather", .unit = "h.\"3\"", .dtype = "bf16", .bytes = 96}));
  return rings;
}

TEST_CASE("ring dump: the file gives back what was written") {
  const comm::RankRings rank = {
      .rank = 3, .place = "node", .now_ns = 5, .rings = rings_with_a_call()->snapshot()};
  const comm::RankRings read = rings_from_json(to_json(rank), "file");
  CHECK(read.rank == 3);
  CHECK(read.place == "node");
  CHECK(read.now_ns == 5);
  REQUIRE(read.rings.size() == 1);
  CHECK(read.rings[0].name == "gather");
  CHECK(read.rings[0].members == std::vector<int>{0, 1});
  CHECK(read.rings[0].issued == 1);
  REQUIRE(read.rings[0].records.size() == 1);
  const comm::CallRecord& call = read.rings[0].records[0];
  CHECK(call.what() == rank.rings[0].records[0].what());
  CHECK(call.state == comm::CallState::kStarted);
  CHECK(call.issued_ns == rank.rings[0].records[0].issued_ns);
  CHECK(call.started_ns == rank.rings[0].records[0].started_ns);
  CHECK(test::contains(test::error_of([] { rings_from_json("{}", "odd.json"); }), "odd.json"));
}

TEST_CASE("ring dump: one file per rank of this process, and the explanation beside them") {
  const test::TempFolder folder;
  RingDump dump;
  dump.add_rank(0, rings_with_a_call());
  dump.add_rank(1, rings_with_a_call());
  dump.set_directory(folder.path());
  const std::string text = dump.collect();
  CHECK(test::contains(text, "all ranks are in it"));
  CHECK(read_file(folder / "rings.txt") == text);
  for (const char* name : {"ring.rank0.json", "ring.rank1.json"}) {
    CHECK(read_json_file(folder / name).at("rings").size() == 1);
  }
}

TEST_CASE("ring dump: a process that is gone is named; without a directory nobody can answer") {
  RingDump dump;
  dump.add_rank(0, rings_with_a_call());
  dump.set_peers({{.rank = 1, .host = "here", .process = 999999999, .reachable = true}});
  CHECK(test::contains(dump.collect(), "rank 1 (here, process 999999999): cannot answer"));
  const test::TempFolder folder;
  dump.set_directory(folder.path());
  const auto begin = std::chrono::steady_clock::now();
  const std::string text = dump.collect();  // does not wait for who is gone
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(1));
  CHECK(test::contains(text, "not seen in it when asked: rank 1 (not heard of)"));
  CHECK(test::contains(text, "rank 1 (here, process 999999999): no answer: the process is gone"));
}

TEST_CASE("ring dump: a process that is stopped is named at once") {
  const pid_t process = ::fork();
  if (process == 0) {
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(process, &status, WUNTRACED);
  REQUIRE(WIFSTOPPED(status));
  const test::TempFolder folder;
  RingDump dump;
  dump.add_rank(0, rings_with_a_call());
  dump.set_peers({{.rank = 1, .host = "here", .process = process, .reachable = true}});
  dump.set_directory(folder.path());
  const auto begin = std::chrono::steady_clock::now();
  CHECK(test::contains(dump.collect(), "no answer: the process is stopped"));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(1));
  ::kill(process, SIGKILL);
  ::waitpid(process, &status, 0);
}

TEST_CASE("ring dump: what another host's rank has just left is read") {
  const test::TempFolder folder;
  RingDump other, dump;
  other.add_rank(1, rings_with_a_call());
  other.set_directory(folder.path());
  other.write_own();
  dump.add_rank(0, rings_with_a_call());
  dump.set_peers({{.rank = 1, .host = "there", .process = 7, .reachable = false}});
  dump.set_directory(folder.path());
  CHECK(test::contains(dump.collect(), "all ranks are in it"));
}

}  // namespace
}  // namespace fsdp::tools
