// Who waits for whom, from rings written by hand.
#include "comm/ring_report.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kNow = 100 * kSecond;

CallRecord call(int64_t sequence, const std::string& unit, CallState state, int64_t bytes = 64) {
  return {.sequence = sequence,
          .kind = "all_gather",
          .unit = unit,
          .dtype = "f32",
          .bytes = bytes,
          .state = state,
          .issued_ns = kNow - 7 * kSecond,
          .started_ns = state == CallState::kIssued ? 0 : kNow - 5 * kSecond,
          .done_ns = state == CallState::kDone ? kNow - 4 * kSecond : 0};
}

RankRings rank_with(int rank, const std::vector<RingSnapshot>& rings) {
  return {.rank = rank, .place = "node" + std::to_string(rank), .now_ns = kNow, .rings = rings};
}

RingSnapshot ring(const std::string& name, const std::vector<int>& members,
                  const std::vector<CallRecord>& calls) {
  return {.name = name,
          .members = members,
          .issued = calls.empty() ? 0 : calls.back().sequence + 1,
          .records = calls};
}

}  // namespace

TEST_CASE("a rank in a collective waits for those that have not come to it") {
  const std::vector<int> all = {0, 1, 2};
  const std::string text =
      explain({rank_with(0, {ring("gather", all,
                                  {call(7, "blocks.0", CallState::kDone),
                                   call(8, "blocks.1", CallState::kStarted)})}),
               rank_with(1, {ring("gather", all, {call(7, "blocks.0", CallState::kDone)})}),
               rank_with(2, {ring("gather", all,
                                  {call(7, "blocks.0", CallState::kDone),
                                   call(8, "blocks.1", CallState::kIssued)})})});
  CAPTURE(text);
  CHECK(contains(text,
                 "rank 0 (node0)\n    gather #8 all_gather, unit blocks.1, 64 bytes of f32: "
                 "started 5.0 s ago; waits for rank 1 (has not issued it), rank 2 (its "
                 "stream has not come to it)\n"));
  CHECK(contains(text,
                 "rank 1 (node1): nothing under way; last: gather #7 all_gather, unit "
                 "blocks.0, 64 bytes of f32, done 4.0 s ago\n"));
  CHECK(contains(text, "issued 7.0 s ago, its stream has not come to it"));
  CHECK(contains(text, "look first at ranks 1, 2: others wait for them"));
  CHECK(!contains(text, "out of step"));
}

TEST_CASE("worth explaining: a tensor was on its way, or a rank waits for long") {
  const auto worth = [](const CallRecord& c) {
    return worth_explaining({rank_with(0, {ring("world", {0, 1}, {c})})});
  };
  CallRecord message = call(0, "", CallState::kDone, 0);
  CHECK(worth(message));
  message.kind = "exchange";
  message.dtype = "";
  CHECK(!worth(message));
  message.state = CallState::kStarted;  // seven seconds ago
  CHECK(worth(message));
  message.issued_ns = kNow - kSecond / 2;
  CHECK(!worth(message));
}

TEST_CASE("a wait that has just begun puts the blame on nobody") {
  RankRings waits = rank_with(0, {ring("gather", {0, 1}, {call(0, "a", CallState::kStarted)})});
  const RankRings late = rank_with(1, {ring("gather", {0, 1}, {})});
  CHECK(contains(explain({waits, late}), "look first at rank 1: "));
  waits.now_ns = kNow - 5 * kSecond + kSecond / 2;
  const std::string text = explain({waits, late});
  CHECK(contains(text, "started 0.5 s ago; not seen in it when asked: rank 1"));
  CHECK(!contains(text, "waits for"));
  CHECK(!contains(text, "look first"));
}

TEST_CASE("a rank that cannot be asked is awaited; ranks are matched by group, not by name alone") {
  // Two shard groups {0, 1} and {2, 3}: rank 2 is done where rank 0 waits, but in another group.
  const std::string text =
      explain({rank_with(0, {ring("gather", {0, 1}, {call(3, "root", CallState::kStarted)})}),
               {.rank = 1, .place = "node1", .silence = "no answer: the process is stopped"},
               rank_with(2, {ring("gather", {2, 3}, {call(3, "root", CallState::kDone)})}),
               rank_with(3, {ring("gather", {2, 3}, {call(3, "root", CallState::kDone)})})});
  CAPTURE(text);
  CHECK(contains(text, "waits for rank 1 (not heard of)\n"));
  CHECK(contains(text, "rank 1 (node1): no answer: the process is stopped\n"));
  CHECK(contains(text, "look first at rank 1: "));
}

TEST_CASE("calls of the same number that are not the same call are shown") {
  const std::vector<int> both = {0, 1};
  const std::string text = explain(
      {rank_with(0, {ring("reduce", both,
                          {call(0, "a", CallState::kDone), call(1, "b", CallState::kStarted)})}),
       rank_with(1,
                 {ring("reduce", both,
                       {call(0, "a", CallState::kDone), call(1, "c", CallState::kStarted, 32)})})});
  CAPTURE(text);
  CHECK(contains(text,
                 "out of step: reduce #1 is all_gather, unit b, 64 bytes of f32 on rank 0, "
                 "all_gather, unit c, 32 bytes of f32 on rank 1\n"));
  CHECK(contains(text, "all ranks are in it"));
}

TEST_CASE("ranks that wait for each other in two groups are out of step; silence is said") {
  const std::vector<int> both = {0, 1};
  const std::string text = explain(
      {rank_with(0, {ring("a", both, {call(0, "x", CallState::kStarted)}), ring("b", both, {})}),
       rank_with(1, {ring("a", both, {}), ring("b", both, {call(0, "x", CallState::kStarted)})})});
  CHECK(contains(text, "every rank waits for another"));
  CHECK(contains(explain({rank_with(0, {ring("a", both, {})})}), "no collective so far"));
}
