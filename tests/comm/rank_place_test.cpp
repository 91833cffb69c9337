// Where a rank is, from calls that are recorded here as a step records its own.
#include "comm/rank_place.h"

#include <doctest/doctest.h>

using namespace fsdp;
using namespace fsdp::comm;

namespace {

struct Rank {
  CollectiveRings rings;
  std::shared_ptr<CollectiveRing> gather = rings.add("gather", {0, 1});
  std::shared_ptr<CollectiveRing> reduce = rings.add("reduce", {0, 1});

  void enter(const std::vector<std::string>& open) { rings.set_phase(HostPhase::of(open)); }
  std::string place() const { return place_of(rings.phase(), rings.snapshot()); }
};
int64_t issue(const std::shared_ptr<CollectiveRing>& ring, const std::string& unit) {
  return ring->issue({.kind = "all_gather", .unit = unit, .dtype = "f32"});
}

}  // namespace

TEST_CASE("rank place: the device's, with the phase of the call, while the host runs ahead") {
  Rank rank;
  CHECK(rank.place() == "");
  rank.enter({"the set-up"});
  CHECK(rank.place() == "the set-up");
  rank.enter({"step 1", "forward"});
  CHECK(rank.place() == "step 1, forward");  // no call yet
  const int64_t first = issue(rank.gather, "root");
  CHECK(rank.place() == "step 1, forward");  // the device has not come to it
  rank.gather->start(first);
  CHECK(rank.place() == "step 1, forward, unit root");
  rank.enter({"step 1", "backward"});
  const int64_t second = issue(rank.reduce, "blocks.1");
  rank.enter({"step 2", "forward"});
  issue(rank.gather, "blocks.0");
  CHECK(rank.place() == "step 1, forward, unit root");
  rank.gather->finish(first);
  rank.reduce->start(second);
  CHECK(rank.place() == "step 1, backward, unit blocks.1");
  rank.enter({});  // between two steps
  CHECK(rank.place() == "step 1, backward, unit blocks.1");
  rank.reduce->finish(second);
  rank.enter({"step 2"});
  CHECK(rank.place() == "step 1, backward, unit blocks.1");
}

TEST_CASE("rank place: the optimizer is no unit; messages between hosts say nothing") {
  Rank rank;
  rank.enter({"step 3", "optimizer"});
  rank.reduce->start(issue(rank.reduce, "optimizer"));
  CHECK(rank.place() == "step 3, optimizer");
  rank.gather->start(rank.gather->issue({.kind = "exchange"}));
  CHECK(rank.place() == "step 3, optimizer");
}

TEST_CASE("rank place: what the host is at beside steps") {
  Rank rank;
  rank.enter({"loading"});
  rank.gather->start(issue(rank.gather, "blocks.0"));
  CHECK(rank.place() == "loading, unit blocks.0");
  rank.enter({"step 1", "forward"});
  CHECK(rank.place() == "step 1, forward");
  rank.gather->start(issue(rank.gather, "blocks.1"));
  rank.enter({"checkpoint"});
  CHECK(rank.place() == "checkpoint");
  rank.enter({"evaluation", "forward"});
  rank.gather->start(issue(rank.gather, "blocks.0"));
  CHECK(rank.place() == "evaluation, forward, unit blocks.0");
  rank.enter({});
  CHECK(rank.place() == "evaluation, forward, unit blocks.0");
}

TEST_CASE("rank place: a checkpoint that a thread writes, while it waits longest") {
  Rank rank;
  const auto writers = rank.rings.add(kCheckpointGroup, {0, 1});
  rank.enter({"step 7", "backward"});
  const int64_t gathered = issue(rank.gather, "blocks.1");
  rank.gather->start(gathered);
  const int64_t message = writers->issue({.kind = "exchange"});
  writers->start(message);
  CHECK(rank.place() == "step 7, backward, unit blocks.1");  // which has waited longer
  rank.gather->finish(gathered);
  rank.reduce->start(issue(rank.reduce, "blocks.1"));
  CHECK(rank.place() == "checkpoint");
  writers->finish(message);
  CHECK(rank.place() == "step 7, backward, unit blocks.1");
}
