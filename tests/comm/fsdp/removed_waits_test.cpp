// Every wait of a step is left out in turn: results are wrong, or the wait is listed here with the
// reason why nothing else can happen. tests/comm/fsdp/survivors.sh prints those that nobody missed.
#include "tests/support/removed_waits.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <doctest/doctest.h>
#include <fnmatch.h>

#include "tests/support/child_process.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

// Waits of a step whose removal changes nothing, and why. Places are patterns as of file names.
struct Redundant {
  Edge edge;
  std::string at, since;  // see Wait
  std::string why;
};
using List = std::vector<Redundant>;

const std::string kBeforeUpdate =
    "the buffer was given back before the update, for which the first gather waits";
const std::string kUpdate = "the first gather of the step waited for the update already";
const std::string kLaterWork =
    "another wait before this gather is for work after the buffer's last use";
const std::string kLastStep = "the end of the last step waited for this reduction already";
const std::string kRootIsLast = "the root's reduction, waited for before, is the last one";
const std::string kBackwardEnd = "the end of backward waited for this reduction already";
const std::string kGatherIsLater = "the unit's gather, waited for before, came after the reduction";
const std::string kSameFlags = "the step before had the same flags";
const std::string kUpdatedBefore =
    "the update of the unit before waited for this reduction already";
const std::string kLaterGather = "a later gather was waited for already";
// What a step's last gather, which nobody uses, would spoil: unit_parameters_test.cpp shows it.
const std::string kNotReused = "the memory that is given back is not used again until it ends";
const std::string kNotRead = "values that other ranks gather too late are never read";
// These name another wait of the list, which therefore stays when the list is removed at once.
const std::string kRootGather = "the root's gather waited for the end of the last backward already";
const std::string kInnerPart = "the buffer was given back after the inner part was copied from it";
const std::string kAllocated = "the buffer, waited for before, was allocated after the update";
const std::string kGivenBack = "the buffer of this reduction is waited for when it is given back";
const std::string kNotClipped =
    "the coefficient is 1, as in the step before, and the norm's sums have been waited for";

bool names_another(const Redundant& wait) {
  return wait.why == kRootGather || wait.why == kInnerPart || wait.why == kAllocated ||
         wait.why == kGivenBack || wait.why == kNotClipped;
}

List operator+(List a, const List& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Gathers of units that give their parameters back wait for the buffer and for the update. `edge`:
// for the buffer.
List buffers(const Edge& edge, const std::string& unit) {
  return {{edge, "*", "last backward*", kBeforeUpdate},
          {edge, "backward* " + unit, "forward* " + unit, kLaterWork}};
}
// `edge`: for the update.
List updates(const Edge& edge) { return {{edge, "*blocks*", "last optimizer*", kUpdate}}; }
List gathers(const std::string& unit = "blocks.1") { return buffers(kFree, unit) + updates(kFree); }

// In the second micro-step, and the third.
List buffers_again(const Edge& edge) {
  return {{edge, "forward ? root", "backward* root", kLaterWork},
          {edge, "forward ? blocks.?", "backward* blocks.?", kRootGather}};
}
List gathers_of_micro_steps() {
  return gathers() + buffers_again(kFree) + List{{kFree, "forward ? root", "last *", kUpdate}};
}

// The second gather of a block waits for the buffer, then for the part that was kept.
List gathers_of_inner_parts() {
  return gathers() + List{{kFree, "backward blocks.2", "forward blocks.2", kLaterWork},
                          {kFree, "backward blocks.?", "forward blocks.? (2)", kInnerPart},
                          {kFree, "backward blocks.0", "forward blocks.0", kInnerPart}};
}

// `edge`: from the end of a reduction. A unit waits before it writes gradients over earlier ones
// (the last block to do so for a buffer of the same backward), and the end of backward for all.
List reductions(const Edge& edge) {
  return {{edge, "*", "last backward*", kLastStep},
          {edge, "backward* end", "backward* blocks*", kRootIsLast}};
}

// The end of backward waits for reductions, buffers that are given back, and shards.
List reductions_into_released_memory() {
  return {{kReduced, "backward end", "backward root", kGivenBack},
          {kReduced, "backward end", "*", kRootIsLast},
          {kReduced, "optimizer", "*", kBackwardEnd}};
}

// Memory of the arena that is allocated in the step.
List allocated(const std::string& units) {
  return {{kFree, "forward root", "forward root", kBeforeUpdate},
          {kFree, "forward root", "last optimizer", kAllocated},
          {kFree, "forward " + units, "forward*", kBeforeUpdate},
          {kFree, "backward blocks.1", "forward blocks.1", kLaterWork}};
}

// Gathers and reductions take turns on one stream, which waits for each unit's gradients, too.
List one_stream() {
  return gathers() + reductions(kGathered) +
         List{{kFree, "backward blocks.0", "backward blocks.2", kLaterWork},
              {kGathered, "backward blocks.0", "backward blocks.2", kGatherIsLater}};
}

// Micro-steps before the last end with the reduce-scatter.
const List kReducedBetween = {{kReduced, "backward ? blocks.[12]", "*", kRootIsLast}};
// In the second micro-step every unit waits for its own reduction in the first.
List reduced_again(const Edge& edge) {
  return {{edge, "backward 2 blocks.?", "backward blocks.?", kRootIsLast}};
}

// What a gather that nobody uses waits for, and is waited for.
const List kGatheredInVain = {{kGathered, "backward root", "forward blocks.2", kNotRead}};

// Every unit is gathered for forward, for recompute, where it is given back, and for backward.
const List kNested =
    gathers("blocks.1.attention") + reductions(kReduced) +
    List{{kFree, "backward blocks.0.attention", "backward blocks.0.attention", kLaterWork},
         {kFree, "backward blocks.1.attention", "backward blocks.1.attention", kLaterWork},
         {kGathered, "backward blocks.?.mlp", "backward blocks.?.mlp", kLaterGather}};

// ---- offload ----
const std::string kHostWaited = "the host waited for the gradients that were sent already";
const std::string kWrittenLater = "gradients are written again behind the next forward's gathers";
const std::string kHostIsDone = "the gathers of this step came after the host's last update";
const std::string kNextRead = "the host waits for the coefficient, which comes later";
const std::string kSentBefore = "the copy waited for before this one came after it";

const Edge kTakesBack = {"from_host", "compute"};  // a buffer that is fetched into
const Edge kSendsAgain = {"reduce", "to_host"};    // a lent shard
const Edge kBroughtBack = {"from_host", "to_host"};

// Flags, what clipping decides, and gradients at the end of backward. `edge`: from the end of a
// reduction.
List offloaded(const Edge& edge) {
  return {{edge, "*", "last backward*", kLastStep},
          {edge, "backward* end", "*", kWrittenLater},
          {kFromHost, "backward* end", "*", kHostIsDone},
          {kToHost, "backward* end", "*", kSameFlags},
          {kToHost, "optimizer", "optimizer", kNextRead},
          {kFromHost, "optimizer", "optimizer (2)", kHostIsDone}};
}

// In the second micro-step what a unit adds to comes back, which it has sent itself.
List brought_back() {
  List all;
  for (const std::string unit : {"blocks.2", "blocks.1", "blocks.0", "root"}) {
    all.push_back({kBroughtBack, "backward 2 " + unit, "backward " + unit, kSentBefore});
  }
  return all;
}

// A unit is fetched for each gather. `updated`: the edge from its update.
List fetches(const Edge& updated) {
  return buffers(kTakesBack, "blocks.1") + List{{updated, "backward*", "last optimizer*", kUpdate},
                                                {kSendsAgain, "*", "last backward*", kHostWaited}};
}
// In the second micro-step, too.
List fetches_again(const Edge& updated) {
  return fetches(updated) + buffers_again(kTakesBack) + kReducedBetween +
         List{{updated, "forward 2 *", "last optimizer*", kUpdate}};
}

// ---- offload to a file ----
const std::string kNobodyLooks = "nobody looks into the file before the last step's end";
const std::string kStepIsOver = "what this step's gathers waited for came after it";
const std::string kElsewhere = "the gradient lies elsewhere in the buffer than the root's";
const std::string kSameUnit = "the buffer had the same values of the same unit before";
const std::string kNormCame = "the last step's norm came after this write";

const Edge kFromFile = {"from_file", "state_out"};  // a unit that is written after its update
const Edge kPieceCopied = {"from_file", "from_host"};
const Edge kPieceWritten = {"to_host", "to_file"};
const Edge kStateWritten = {"state_in", "state_out"};

const List kInFile = {{kPieceCopied, "*", "last backward*", kStepIsOver},
                      {kPieceWritten, "*", "last backward*", kNormCame},
                      {{"state_in", "host"}, "optimizer", "optimizer", kElsewhere},
                      {kStateWritten, "optimizer", "last optimizer*", kStepIsOver},
                      {{"file", "state_out"}, "*", "*", kNobodyLooks},
                      {{"file", "to_file"}, "*", "*", kNobodyLooks}};
const List kAddedToInFile = {{kPieceCopied, "forward 2 blocks.0", "*", kSameUnit},
                             {{"from_host", "from_file"}, "forward 2 blocks.0", "*", kSameUnit}};

std::map<Edge, int> added_to_in_file(std::map<Edge, int> counts) {
  counts.insert({{{"from_file", "to_file"}, 4}, {kBroughtBack, 4}, {{"reduce", "from_host"}, 4}});
  return counts;
}

std::map<Edge, int> waits_in_file(int micro_steps) {
  const int m = micro_steps;
  return {{kFromHost, 3},
          {kToHost, 3},
          {kTakesBack, 7 * m},
          {kFromFile, 7 * m},
          {kPieceCopied, 7 * m + 4 * (m - 1)},
          {{"from_host", "from_file"}, 7 * m + 4 * (m - 1)},
          {kFetched, 7 * m},
          {kGathered, 7 * m},
          {kReduced, 4 + 4 * m},
          {kSendsAgain, 4},
          {kComputed, 4 * m},
          {{"to_host", "reduce"}, 4 * m},
          {kPieceWritten, 4 * m},
          {{"to_file", "to_host"}, 4 * m},
          {{"file", "to_file"}, 4 * m},
          {{"state_in", "to_file"}, 1},
          {kStateWritten, 8},
          {{"host", "state_in"}, 8},
          {{"state_in", "host"}, 4},
          {{"state_out", "host"}, 4},
          {{"file", "state_out"}, 4}};
}

// ---- inputs on the host ----
const std::string kOwnMemory =
    "the host's memory is written again behind the compute stream, which has waited for this copy";
const std::string kNotFetched = "the last input of a forward is taken where it is";

// Of a step that sends so many.
std::map<Edge, int> with_inputs(std::map<Edge, int> counts, int sent) {
  counts.insert({{kInputWritten, sent},
                 {kInputBlock, sent},
                 {kInputGone, sent},
                 {kInputFree, sent - 1},
                 {kInputBack, sent - 1},
                 {kBlockSent, 1},
                 {kBlockFetched, sent - 1}});
  return counts;
}

struct Expected {
  List redundant;
  std::map<Edge, int> counts;  // of all waits of a step
};

std::map<std::string, Expected> expected_with_offload() {
  const std::map<Edge, int> flags = {{kSent, 1}, {kFromHost, 3}, {kToHost, 3}};
  const auto with = [&](std::map<Edge, int> more) {
    more.insert(flags.begin(), flags.end());
    return more;
  };
  return {{"offload: optimizer",
           {buffers(kFree, "blocks.1") + offloaded(kReduced) +
                List{{kFetched, "backward*", "last optimizer*", kUpdate}},
            with({{kFree, 7},
                  {kFetched, 7},
                  {kGathered, 7},
                  {kReduced, 8},
                  {kComputed, 4},
                  {{"to_host", "reduce"}, 4},
                  {kUpdated, 4}})}},
          {"offload: optimizer, no_shard, micro-steps",
           {reduced_again(kReplicated) + offloaded(kReplicated), with({{kFetched, 4},
                                                                       {kGathered, 4},
                                                                       {kReplicated, 12},
                                                                       {kComputed, 8},
                                                                       {kScattered, 8},
                                                                       {{"to_host", "replicas"}, 4},
                                                                       {kUpdated, 4}})}},
          {"offload: optimizer, a block left out",
           {kGatheredInVain + offloaded(kReduced) +
                List{{kFetched, "forward blocks.2", "*", kNotRead},
                     {kUpdated, "optimizer blocks.2", "*", kNotRead},
                     {kToHost, "optimizer", "optimizer (2)", kNotClipped}},
            with({{kFetched, 4},
                  {kGathered, 4},
                  {kReduced, 7},
                  {kComputed, 3},
                  {{"to_host", "reduce"}, 3},
                  {kUpdated, 4}})}},
          {"offload: all",
           {fetches(kUpdated) + offloaded(kReduced), with({{kTakesBack, 7},
                                                           {kUpdated, 7},
                                                           {kFetched, 7},
                                                           {kGathered, 7},
                                                           {kReduced, 8},
                                                           {kSendsAgain, 4},
                                                           {kComputed, 4},
                                                           {{"to_host", "reduce"}, 4}})}},
          {"offload: all, micro-steps",
           {fetches_again(kUpdated) + offloaded(kReduced) + brought_back(),
            with({{kTakesBack, 14},
                  {kUpdated, 14},
                  {kFetched, 14},
                  {kGathered, 14},
                  {kReduced, 12},
                  {kSendsAgain, 4},
                  {kComputed, 8},
                  {{"to_host", "reduce"}, 8},
                  {kBroughtBack, 8},
                  {{"reduce", "from_host"}, 4}})}}};
}

std::map<std::string, Expected> expected_with_file() {
  const List all = kInFile + offloaded(kReduced);
  return {{"offload: nvme", {fetches(kFromFile) + all, waits_in_file(1)}},
          {"offload: nvme, micro-steps",
           {fetches_again(kFromFile) + kAddedToInFile + all, added_to_in_file(waits_in_file(2))}}};
}

// `last`: the block whose input forward sends last, and backward takes first. `sent`: its name
// then.
List waits_of_inputs(const std::string& last, const std::string& sent) {
  return {{kInputBlock, "*", "*", kOwnMemory},
          {kInputWritten, "forward " + last, "forward " + sent, kNotFetched},
          {kInputGone, "backward " + last, "*", kNotFetched},
          {kBlockSent, "*", "*", kOwnMemory},
          {kBlockFetched, "*", "*", kOwnMemory}};
}

std::map<std::string, Expected> expected_with_inputs() {
  return {
      {"inputs on the host",
       {gathers() + reductions(kReduced) + waits_of_inputs("blocks.2", "blocks.2"),
        with_inputs({{kGathered, 7}, {kReduced, 8}, {kFree, 14}, {kComputed, 4}}, 3)}},
      {"inputs on the host, two forwards",
       {gathers("blocks.0") + reductions(kReduced) + waits_of_inputs("blocks.1", "blocks.1 (2)"),
        with_inputs({{kGathered, 9}, {kReduced, 6}, {kFree, 18}, {kComputed, 3}}, 4)}}};
}

std::map<std::string, Expected> expected_of_settings() {
  const std::map<Edge, int> sharded = {{kGathered, 7}, {kReduced, 8}, {kFree, 14}, {kComputed, 4}};
  const std::map<Edge, int> kept = {{kGathered, 4}, {kReduced, 8}, {kFree, 4}, {kComputed, 4}};
  const Expected hybrid_micro_steps = {
      gathers_of_micro_steps() + reductions(kReplicated) + kReducedBetween,
      {{kGathered, 21},
       {kReplicated, 8},
       {kReduced, 8},
       {kFree, 42},
       {kComputed, 12},
       {kScattered, 4}}};
  return {
      {"full_shard", {gathers() + reductions(kReduced), sharded}},
      {"hpZ", {gathers_of_inner_parts() + reductions(kReduced), sharded}},
      {"one stream", {one_stream(), {{kGathered, 15}, {kFree, 18}}}},
      {"arena released",
       {allocated("blocks.[01]") + updates(kFree) + reductions_into_released_memory(),
        {{kGathered, 7}, {kReduced, 12}, {kFree, 14}, {kComputed, 4}}}},
      // The second wait for what computes is for the flags of a unit.
      {"update in backward",
       {gathers() + List{{kReduced, "*", "last backward*", kLastStep},
                         {kReduced, "backward* blocks.0", "backward blocks.2", kUpdatedBefore},
                         {kComputed, "*", "* (2)", kSameFlags}},
        {{kGathered, 7}, {kReduced, 8}, {kFree, 14}, {kComputed, 8}}}},
      {"shard_grad_op", {updates(kFree) + reductions(kReduced), kept}},
      {"shard_optimizer", {updates(kFree) + reductions(kReduced), kept}},
      {"no_shard", {reductions(kReplicated), {{kReplicated, 8}, {kComputed, 4}, {kScattered, 4}}}},
      {"hybrid_shard",
       {gathers() + reductions(kReplicated),
        {{kGathered, 7}, {kReplicated, 8}, {kFree, 14}, {kComputed, 4}, {kScattered, 4}}}},
      {"hybrid_shard, micro-steps", hybrid_micro_steps},
      {"hybrid_shard in fixed order, micro-steps", hybrid_micro_steps},
      {"hybrid_shard, narrow sum",
       {gathers_of_micro_steps() + reductions(kReplicated) +
            List{{kReturned, "*", "last backward*", kLastStep}},
        {{kGathered, 14},
         {kReplicated, 8},
         {kFree, 28},
         {kComputed, 4},
         {kScattered, 4},
         {kReturned, 4}}}},
      {"shard_optimizer, micro-steps",
       {updates(kFree) + reductions(kReduced) + reduced_again(kReduced),
        {{kGathered, 4}, {kReduced, 12}, {kFree, 4}, {kComputed, 8}}}},
      {"a block left out, arena released",
       {List{{kReduced, "*", "last backward*", kLastStep}} + allocated("blocks.?") +
            updates(kFree) + reductions_into_released_memory() +
            List{{kGathered, "backward root", "backward blocks.0", kNotReused}},
        {{kGathered, 6}, {kReduced, 11}, {kFree, 12}, {kComputed, 3}}}},
      {"a block left out, shard_grad_op",
       {updates(kFree) + reductions(kReduced) + kGatheredInVain,
        {{kGathered, 4}, {kReduced, 7}, {kFree, 4}, {kComputed, 3}}}},
      {"attention and MLP as units, recompute",
       {kNested, {{kGathered, 13}, {kReduced, 10}, {kFree, 26}, {kComputed, 5}}}},
      {"two forwards",
       {gathers("blocks.0") + reductions(kReduced),
        {{kGathered, 9}, {kReduced, 6}, {kFree, 18}, {kComputed, 3}}}}};
}

// Why nobody would miss the wait; null: somebody would.
const Redundant* redundant(const List& list, const Wait& wait) {
  const auto like = [](const std::string& pattern, const std::string& place) {
    return ::fnmatch(pattern.c_str(), place.c_str(), 0) == 0;
  };
  const auto found = std::find_if(list.begin(), list.end(), [&](const Redundant& r) {
    return r.edge == wait.edge && like(r.at, wait.at) && like(r.since, wait.since);
  });
  return found == list.end() ? nullptr : &*found;
}

// With FSDP_TEST_SURVIVORS set: "setting | waiting <- recorded | where | since | reason".
void print(const std::string& setting, const Wait& wait, const std::string& why) {
  if (!std::getenv("FSDP_TEST_SURVIVORS")) return;
  std::puts(fmt::format("{} | {} <- {} | {} | {} | {}", setting, wait.edge.first, wait.edge.second,
                        wait.at, wait.since, why)
                .c_str());
}

// One attempt, with a delay at which what is needed is missed.
bool survives(const RunSpec& s, const Removal& removal, const RunResult& expected) {
  return !noticed(s, removal, expected, 1, 3);
}

// Removes each wait of a step in turn: noticed, unless it is listed as redundant. Those of an edge
// that are listed are removed at once, so that no two are each other's reason.
void check_single_waits(const OrderSetting& setting, const Expected& e) {
  const RunSpec s = spec_of(setting);
  const RunResult expected = train(s);
  CHECK(!noticed(s, {{"no", "such edge"}}, expected, 1));
  std::map<Edge, int> counts;
  std::map<Edge, std::set<int>> at_once;
  std::set<const Redundant*> listed;
  for (const Wait& wait : waits_of_a_step(s)) {
    const int number = counts[wait.edge]++;
    CAPTURE(wait.edge.first);
    CAPTURE(wait.edge.second);
    CAPTURE(wait.at);
    CAPTURE(wait.since);
    const Redundant* found = redundant(e.redundant, wait);
    if (!found) {
      CHECK(noticed(s, {wait.edge, {number}}, expected, kAttempts));
      continue;
    }
    listed.insert(found);
    print(setting.what, wait, found->why);
    // AddressSanitizer may see a use of memory that was given back, or is not allocated yet, which
    // no result shows.
    if (kAddressSanitizer) continue;
    if (names_another(*found)) {
      CHECK(survives(s, {wait.edge, {number}}, expected));
    } else {
      at_once[wait.edge].insert(number);
    }
  }
  for (const auto& [edge, numbers] : at_once) {
    CAPTURE(edge.first);
    CAPTURE(edge.second);
    CHECK(survives(s, {edge, numbers}, expected));
  }
  CHECK((counts == e.counts));
  std::set<Edge> edges;
  for (const auto& [edge, count] : counts) edges.insert(edge);
  CHECK((edges == setting.edges));
  CHECK(listed.size() == e.redundant.size());  // each is about some wait
}

}  // namespace

TEST_CASE("without any single wait of a step results are wrong, but for those that are redundant" *
          doctest::skip(kThreadSanitizer)) {
  std::map<std::string, Expected> expected = expected_of_settings();
  expected.merge(expected_with_offload());
  expected.merge(expected_with_file());
  expected.merge(expected_with_inputs());
  for (const OrderSetting& setting : order_settings()) {
    CAPTURE(setting.what);
    check_single_waits(setting, expected.at(setting.what));
  }
}
