// What a communicator remembers of its calls: kind, unit, size, order and how far they came.
#include "comm/collective_ring.h"

#include <set>
#include <thread>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/support/comm_checks.h"
#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

TEST_CASE("a ring keeps the last calls, with their numbers") {
  CollectiveRing ring("gather", {0, 2}, 0);
  const auto capacity = static_cast<int64_t>(CollectiveRing::kCapacity);
  for (int64_t i = 0; i < capacity + 3; ++i) {
    CHECK(ring.issue({.kind = "all_gather", .unit = "u" + std::to_string(i), .bytes = i}) == i);
  }
  ring.start(2);  // forgotten
  ring.start(capacity);
  ring.finish(capacity);
  ring.start(capacity + 2);
  const RingSnapshot seen = ring.snapshot();
  CHECK(seen.name == "gather");
  CHECK(seen.members == std::vector<int>{0, 2});
  CHECK(seen.issued == capacity + 3);
  REQUIRE(seen.records.size() == CollectiveRing::kCapacity);
  for (size_t i = 0; i < seen.records.size(); ++i) {
    const CallRecord& call = seen.records[i];
    CHECK(call.sequence == static_cast<int64_t>(i) + 3);
    CHECK(call.unit == "u" + std::to_string(call.sequence));
    const auto expected = call.sequence == capacity       ? CallState::kDone
                          : call.sequence == capacity + 2 ? CallState::kStarted
                                                          : CallState::kIssued;
    CHECK(call.state == expected);
    CHECK((call.started_ns >= call.issued_ns) == (expected != CallState::kIssued));
    CHECK((call.done_ns >= call.started_ns && call.done_ns > 0) == (expected == CallState::kDone));
  }
}

TEST_CASE("the order of calls: equal for equal calls, and a call long forgotten still counts") {
  const auto order_with = [](int64_t bytes_of_first) {
    CollectiveRing ring("reduce", {0, 1}, 0);
    for (int i = 0; i < 400; ++i) {
      ring.issue({.kind = "all_reduce", .dtype = "f32", .bytes = i == 0 ? bytes_of_first : 4});
    }
    return ring.order();
  };
  const std::vector<std::string> order = order_with(8);
  CHECK(order == order_with(8));
  CHECK(order.front() == "reduce #160: all_reduce, 4 bytes of f32");
  const std::vector<std::string> other = order_with(12);
  CHECK(order.back() != other.back());
  CHECK(std::vector<std::string>(order.begin(), order.end() - 1) ==
        std::vector<std::string>(other.begin(), other.end() - 1));
}

TEST_CASE("the order of calls: a transport may exchange texts in one group and not in another") {
  const auto order_with = [](int calls, bool exchanges) {
    CollectiveRing ring("replicas", {0, 1}, 0);
    for (int i = 0; i < calls; ++i) {
      if (exchanges && (i < 3 || i == calls - 1)) ring.issue({.kind = "exchange"});
      ring.issue({.kind = "all_gather", .dtype = "f32", .bytes = i});
    }
    return ring.order();
  };
  CHECK(order_with(4, true) == order_with(4, false));
  CHECK(order_with(4, true)[1] == "replicas #1: all_gather, 1 bytes of f32");
  CHECK(order_with(400, true) == order_with(400, false));
  CHECK(order_with(400, true) != order_with(401, true));
}

TEST_CASE("rings outlive their communicators; old ones nobody writes to are dropped") {
  CollectiveRings rings;
  const auto kept = rings.add("world", {0, 1});
  for (size_t i = 0; i < 3 * CollectiveRings::kCapacity; ++i) rings.add("short", {0, 1});
  const std::vector<RingSnapshot> seen = rings.snapshot();
  CHECK(seen.size() == CollectiveRings::kCapacity);
  CHECK(seen.front().name == "world");
  CHECK(seen.back().ordinal == 3 * static_cast<int>(CollectiveRings::kCapacity) - 1);
}

namespace {

// What a ring keeps of so many steps, each with a collective right below it and one in backward.
RingSnapshot after_steps(int64_t steps) {
  const auto note = std::make_shared<HostPhaseNote>();
  CollectiveRing ring("world", {0, 1}, 0, note);
  for (int64_t step = 1; step <= steps; ++step) {
    const std::string name = "step " + std::to_string(step);
    for (const std::vector<std::string>& open :
         {std::vector{name, std::string("backward")}, {name}}) {
      note->set(HostPhase::of(open));
      const int64_t call = ring.issue({.kind = "all_reduce", .dtype = "f32", .bytes = 4});
      ring.start(call);
      ring.finish(call);
    }
  }
  return ring.snapshot();
}

}  // namespace

TEST_CASE("a ring keeps no more of ten thousand steps than of a hundred") {
  CHECK(HostPhase::of({"step 12"}).innermost == "step");
  CHECK(HostPhase::of({"step 12"}).whole == "step 12");
  CHECK(HostPhase::of({"step 12", "backward"}).innermost == "backward");
  CHECK(HostPhase::of({"7"}).innermost == "7");
  const RingSnapshot few = after_steps(100), many = after_steps(10'000);
  CHECK(few.waits.size() == 2 * CollectiveRing::kWaits);
  CHECK(many.waits.size() == few.waits.size());
  CHECK(many.waits.back().phase.whole == "step 10000");
}

TEST_CASE("a ring keeps the waits of so many kinds of phases, whatever callers call them") {
  const auto note = std::make_shared<HostPhaseNote>();
  CollectiveRing ring("world", {0, 1}, 0, note);
  for (int i = 0; i < 1000; ++i) {
    // "kept" comes again and again; the others once.
    for (const std::string& name : {std::string("kept"), "phase" + std::to_string(i)}) {
      note->set({.whole = name, .innermost = name});
      const int64_t call = ring.issue({.kind = "all_reduce", .dtype = "f32", .bytes = 4});
      ring.start(call);
      ring.finish(call);
    }
  }
  std::set<std::string> kinds;
  for (const PhaseWait& wait : ring.snapshot().waits) kinds.insert(wait.phase.innermost);
  CHECK(kinds.size() == CollectiveRing::kKinds);
  CHECK(kinds.contains("kept"));
  CHECK(kinds.contains("phase999"));
}

TEST_CASE("communicators record their calls: what, for which unit, who takes part, done or not") {
  run_local_ranks(4, [](Communicator& world) {
    CommRank rank(world.rank());
    // Odd ranks in reverse: members are ranks of the job, also after two splits.
    const auto half =
        world.split([](int r) { return SplitPlace{.color = r % 2, .key = -r}; }, "half");
    const auto again = half->duplicate("again");
    const std::vector<int> members =
        world.rank() % 2 == 0 ? std::vector<int>{2, 0} : std::vector<int>{3, 1};
    CHECK(half->ring().members() == members);
    CHECK(again->ring().members() == members);

    const Tensor value = finished_zeros(rank, 10);
    rank.backend->set_scope("blocks.1");
    again->all_reduce(*rank.first, value, ReduceOp::kSum);
    rank.backend->set_scope("");
    again->all_gather(*rank.first, value)->wait();
    again->exchange("hello");
    const RingSnapshot seen = again->ring().snapshot();
    REQUIRE(seen.records.size() == 3);
    CHECK(seen.records[0].what() == "all_reduce, unit blocks.1, 40 bytes of f32");
    CHECK(seen.records[1].what() == "all_gather, 40 bytes of f32");
    CHECK(seen.records[2].what() == "exchange");
    for (const CallRecord& call : seen.records) CHECK(call.state == CallState::kDone);
    CHECK(again->rings() == world.rings());
  });
}

TEST_CASE("ranks that call the same collective for different units are told so") {
  const std::string message = error_of([] {
    run_local_ranks(3, [](Communicator& world) {
      CommRank rank(world.rank());
      const Tensor value = finished_zeros(rank, 9);
      rank.backend->set_scope(world.rank() == 2 ? "blocks.4" : "blocks.3");
      world.all_gather(*rank.first, value)->wait();
    });
  });
  CAPTURE(message);
  CHECK(contains(message, "all_gather of 9 f32, unit blocks.3, on rank 0"));
  CHECK(contains(message, "all_gather of 9 f32, unit blocks.4, on rank 2"));
}
