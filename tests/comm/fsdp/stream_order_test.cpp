// The order between streams: random delays never change a bit; a wait that is left out does, or is
// listed here with the reason why nothing else can happen.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <set>

#include <doctest/doctest.h>

#include "tests/support/sharded_run.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

// ThreadSanitizer sees a missing edge itself, whatever comes out; see the last case.
#ifdef __SANITIZE_THREAD__
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

using Edge = std::pair<std::string, std::string>;  // the stream that waits, the recorded one

struct Setting {
  std::string what;
  int ranks;
  FsdpOptions options;
  std::set<Edge> edges;  // of a step
};

const Edge kGathered = {"compute", "gather"};      // parameters before their use
const Edge kFree = {"gather", "compute"};          // use of a buffer and the update before a gather
const Edge kComputed = {"reduce", "compute"};      // gradients before their reduction
const Edge kReduced = {"compute", "reduce"};       // reduction before optimizer and next tenant
const Edge kScattered = {"replicas", "reduce"};    // reduce-scatter before all-reduce
const Edge kReplicated = {"compute", "replicas"};  // all-reduce before optimizer and next tenant
const Edge kReturned = {"reduce", "replicas"};     // all-reduce before the buffer's next reduction

const FsdpOptions kHybrid = {.strategy = Strategy::kHybridShard, .shard_size = 2};
// The sum of the micro-steps is f32; it is narrowed into a buffer that only the reduce streams use.
FsdpOptions narrow_sum(FsdpOptions options) {
  options.param_dtype = options.reduce_dtype = DType::kBF16;
  options.accumulation = Accumulation::kReduceLast;
  options.micro_steps = 2;
  return options;
}

std::vector<Setting> settings() {
  using enum Strategy;
  const std::set<Edge> sharded = {kGathered, kFree, kComputed, kReduced};
  const std::set<Edge> hybrid = {kGathered, kFree, kComputed, kScattered, kReplicated};
  FsdpOptions scatter_each = kHybrid;
  scatter_each.accumulation = Accumulation::kReduceScatterEach;
  scatter_each.micro_steps = 3;
  return {{"full_shard", 2, {}, sharded},
          {"hpZ", 4, {.reshard_group_size = 2}, sharded},
          {"one stream", 2, {.separate_reduce = false}, {kGathered, kFree}},
          {"arena released", 2, {.release_arena = true}, sharded},
          {"shard_grad_op", 2, {.strategy = kShardGradOp}, sharded},
          {"shard_optimizer", 2, {.strategy = kShardOptimizer}, sharded},
          {"no_shard", 2, {.strategy = kNoShard}, {kComputed, kScattered, kReplicated}},
          {"hybrid_shard", 4, kHybrid, hybrid},
          // Micro-steps before the last end on the reduce stream.
          {"hybrid_shard, micro-steps",
           4,
           scatter_each,
           {kGathered, kFree, kComputed, kReduced, kScattered, kReplicated}},
          {"hybrid_shard, narrow sum",
           4,
           narrow_sum(kHybrid),
           {kGathered, kFree, kComputed, kScattered, kReplicated, kReturned}}};
}

RunSpec spec(const Setting& setting) {
  RunSpec s;
  s.ranks = setting.ranks;
  s.fsdp = setting.options;
  s.rows = 4 * setting.options.micro_steps;
  return s;
}

}  // namespace

TEST_CASE("random delays on all streams of all ranks: the same bits") {
  for (const Setting& setting : settings()) {
    RunSpec s = spec(setting);
    const RunResult expected = train(s);
    for (const uint64_t seed : {1, 2, 3}) {
      CAPTURE(setting.what);
      CAPTURE(seed);
      s.cpu = [&](int rank) {
        return random_delays(seed * 100 + static_cast<uint64_t>(rank), 300);
      };
      CHECK((train(s) == expected));
    }
  }
}

TEST_CASE("random delays under other schedules: the same bits") {
  for (const FsdpOptions& options :
       {FsdpOptions{.forward_prefetch = 3, .units_in_flight = 3},
        FsdpOptions{.backward_prefetch = BackwardPrefetch::kPost, .units_in_flight = 1},
        FsdpOptions{.param_dtype = DType::kBF16, .reduce_dtype = DType::kBF16},
        FsdpOptions{.accumulation = Accumulation::kReduceLast, .micro_steps = 2}}) {
    RunSpec s;
    s.subject = causal_lm(small_llama(), RecomputeMode::kFull);
    s.training = true;
    s.ranks = 3;
    s.fsdp = options;
    const RunResult expected = train(s);
    s.cpu = [](int rank) { return random_delays(static_cast<uint64_t>(rank), 300); };
    CHECK((train(s) == expected));
  }
}

// ---------------------------------------------------------------------------- Removed edges

namespace {

// Which waits of the second step (and of later ones) are left out, on every rank.
struct Removal {
  Edge edge;
  std::set<int> numbers = {};  // the how-manieth of the step, from 0; none: all
};

// Two steps. The streams on which the removed waits wait are slowed down, so that they come too
// late.
RunResult train_without(const RunSpec& spec, const Removal& removal, int delay_factor) {
  std::vector<RunResult> results(static_cast<size_t>(spec.ranks));
  run_local_ranks(spec.ranks, [&](Communicator& world) {
    bool active = false;
    int number = 0;
    RunSpec mine = spec;
    mine.cpu = [&](int) {
      cpu::CpuOptions o;
      // Compute has many tasks, and a short sleep takes long: it sleeps before every fourth one.
      o.delay = [&, task = 0](const std::string& stream, std::string_view) mutable {
        if (stream != removal.edge.second) return 0;
        const bool compute = stream == "compute";
        if (compute && task++ % 4 != 0) return 0;
        return (compute ? 40 : 100) * delay_factor;
      };
      o.ignore_wait = [&](const std::string& waiting, const std::string& recorded) {
        if (!active || Edge{waiting, recorded} != removal.edge) return false;
        const int n = number++;
        return removal.numbers.empty() || removal.numbers.contains(n);
      };
      return o;
    };
    RankRun run(world, mine);
    run.step(0);
    active = true;
    run.step(1);
    active = false;
    results[static_cast<size_t>(world.rank())] = run.result();
  });
  for (const RunResult& result : results) {
    if (!(result == results[0])) return {};  // the ranks disagree
  }
  return results[0];
}

// Whether the results show that the waits are missing; several tries with longer and longer delays.
bool noticed(const RunSpec& spec, const Removal& removal, const RunResult& expected, int tries,
             int delay_factor = 1) {
  for (int i = 0; i < tries; ++i) {
    try {
      if (!(train_without(spec, removal, delay_factor << i) == expected)) return true;
    } catch (const Error&) {
      return true;
    }
  }
  return false;
}

// The waits of the second step in order of issue, with the unit that was in scope. A stream that
// waits for itself waits for nothing.
std::vector<std::pair<Edge, std::string>> waits_of_a_step(RunSpec s) {
  std::vector<std::pair<Edge, std::string>> waits;
  run_local_ranks(s.ranks, [&](Communicator& world) {
    const RankRun* active = nullptr;
    RunSpec mine = s;
    mine.cpu = [&](int rank) {
      cpu::CpuOptions o;
      o.ignore_wait = [&, rank](const std::string& waiting, const std::string& recorded) {
        const bool counts = active && rank == 0 && waiting != recorded;
        if (counts) waits.push_back({{waiting, recorded}, active->scope()});
        return false;
      };
      return o;
    };
    RankRun run(world, mine);
    run.step(0);
    active = &run;
    run.step(1);
    active = nullptr;
    run.wait();
  });
  return waits;
}

constexpr int kTries = 9;
constexpr int kStrong = 8;  // delays, where nothing should be noticed

}  // namespace

TEST_CASE("without all waits of one stream for another, results are wrong" *
          doctest::skip(kThreadSanitizer)) {
  for (const Setting& setting : settings()) {
    CAPTURE(setting.what);
    RunSpec s = spec(setting);
    s.steps = 2;
    std::set<Edge> edges;
    for (const auto& [edge, scope] : waits_of_a_step(s)) edges.insert(edge);
    for (const Edge& edge : edges) {
      CAPTURE(edge.first);
      CAPTURE(edge.second);
      CHECK(setting.edges.contains(edge));
    }
    CHECK(edges.size() == setting.edges.size());
    const RunResult expected = train(s);
    for (const Edge& edge : edges) {
      CAPTURE(edge.first);
      CAPTURE(edge.second);
      CHECK(noticed(s, {edge}, expected, kTries));
    }
  }
}

namespace {

// A wait of a step whose removal changes nothing, and why.
struct Redundant {
  Edge edge;
  int number;
  std::string scope;
  std::string why;
};

const std::string kSameValues = "the buffer holds the same values since the unit's last use";
const std::string kLastStep = "the end of the last step waited for this reduction already";
const std::string kRootIsLast = "the root's reduction, waited for before, is the last one";
const std::string kBackwardEnd = "the end of backward waited for this reduction already";
const std::string kUpdate = "the first gather of the step waited for the update already";
const std::string kBeforeUpdate = "the buffer was given back before the update";
// These name another wait of the list, which therefore stays when the list is removed at once.
const std::string kInnerPart = "the buffer was given back after the inner part was copied from it";
const std::string kAllocated = "the buffer, waited for before, was allocated after the update";
const std::string kGivenBack = "the buffer of this reduction is waited for when it is given back";

bool names_another(const Redundant& wait) {
  return wait.why == kInnerPart || wait.why == kAllocated || wait.why == kGivenBack;
}

// Of a forward and a backward with one reduction. `reduced`: the edge from its end; `regather`: why
// the second gather of a unit need not wait for its source.
std::vector<Redundant> redundant_waits(const Edge& reduced, const std::string& regather) {
  return {
      {kGathered, 4, "blocks.2", kSameValues}, {kGathered, 5, "blocks.1", kSameValues},
      {reduced, 0, "root", kLastStep},         {reduced, 1, "blocks.2", kLastStep},
      {reduced, 2, "blocks.1", kLastStep},     {reduced, 5, "", kRootIsLast},
      {reduced, 6, "", kRootIsLast},           {reduced, 7, "", kRootIsLast},
      {kFree, 0, "root", kBeforeUpdate},       {kFree, 2, "root", kBeforeUpdate},
      {kFree, 3, "blocks.0", kUpdate},         {kFree, 4, "blocks.0", kBeforeUpdate},
      {kFree, 5, "blocks.1", kUpdate},         {kFree, 7, "blocks.2", kUpdate},
      {kFree, 8, "root", kSameValues},         {kFree, 9, "blocks.2", regather},
      {kFree, 10, "blocks.2", kSameValues},    {kFree, 11, "blocks.1", regather},
      {kFree, 13, "blocks.0", regather},
  };
}

// With memory that is given back in every step.
std::vector<Redundant> redundant_waits_for_released_memory() {
  std::vector<Redundant> all = redundant_waits(kReduced, kUpdate);
  // A late gather would write into memory that has become something else's.
  std::erase_if(all, [](const Redundant& r) {
    return r.edge == kReduced || (r.edge == kGathered && r.number == 5);
  });
  all.push_back({kFree, 1, "root", kAllocated});
  all.push_back({kReduced, 1, "", kGivenBack});
  for (const int number : {2, 3, 4, 5, 6, 7}) all.push_back({kReduced, number, "", kRootIsLast});
  for (const int number : {8, 9, 10, 11}) all.push_back({kReduced, number, "", kBackwardEnd});
  return all;
}

// Two micro-steps that are reduced once.
std::vector<Redundant> redundant_waits_of_a_sum() {
  std::vector<Redundant> all = redundant_waits(kReplicated, kUpdate);
  const std::vector<Redundant> more = {
      {kReplicated, 3, "blocks.0", kLastStep},
      {kReturned, 0, "blocks.2", kLastStep},
      {kReturned, 1, "blocks.1", kLastStep},
      {kReturned, 3, "root", kLastStep},
      {kGathered, 7, "root", kSameValues},
      {kGathered, 8, "blocks.0", kSameValues},
      {kGathered, 9, "blocks.1", kSameValues},
      {kGathered, 11, "blocks.2", kSameValues},
      {kGathered, 12, "blocks.1", kSameValues},
      {kFree, 14, "root", kSameValues},
      {kFree, 15, "root", kUpdate},
      {kFree, 16, "root", kSameValues},
      {kFree, 17, "blocks.0", kUpdate},
      {kFree, 18, "blocks.0", kSameValues},
      {kFree, 19, "blocks.1", kUpdate},
      {kFree, 21, "blocks.2", kUpdate},
      {kFree, 22, "root", kSameValues},
      {kFree, 23, "blocks.2", kUpdate},
      {kFree, 24, "blocks.2", kSameValues},
      {kFree, 25, "blocks.1", kUpdate},
      {kFree, 27, "blocks.0", kUpdate},
  };
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Removes each wait of a step of that setting in turn: noticed, unless it is listed as redundant.
// Those of an edge that are listed are removed at once, so that no two are each other's reason.
void check_single_waits(const std::string& what, const std::vector<Redundant>& redundant,
                        const std::map<Edge, int>& counts) {
  const std::vector<Setting> all = settings();
  const auto setting =
      std::find_if(all.begin(), all.end(), [&](const Setting& s) { return s.what == what; });
  RunSpec s = spec(*setting);
  s.steps = 2;
  const RunResult expected = train(s);
  std::map<Edge, int> numbers;
  std::map<Edge, std::set<int>> at_once;
  size_t listed = 0;
  CAPTURE(what);
  for (const auto& [edge, scope] : waits_of_a_step(s)) {
    const int number = numbers[edge]++;
    CAPTURE(edge.first);
    CAPTURE(edge.second);
    CAPTURE(number);
    CAPTURE(scope);
    const auto found = std::find_if(redundant.begin(), redundant.end(), [&](const Redundant& r) {
      return r.edge == edge && r.number == number;
    });
    if (found == redundant.end()) {
      CHECK(noticed(s, {edge, {number}}, expected, kTries));
      continue;
    }
    CHECK(found->scope == scope);
    ++listed;
    if (names_another(*found)) {
      CHECK(!noticed(s, {edge, {number}}, expected, 1, kStrong));
    } else {
      at_once[edge].insert(number);
    }
  }
  for (const auto& [edge, removed] : at_once) {
    CAPTURE(edge.first);
    CAPTURE(edge.second);
    CHECK(!noticed(s, {edge, removed}, expected, 1, kStrong));
  }
  CHECK((numbers == counts));
  CHECK(listed == redundant.size());
}

}  // namespace

TEST_CASE("without any single wait of a step results are wrong, but for those that are redundant" *
          doctest::skip(kThreadSanitizer)) {
  const auto check = check_single_waits;
  check("full_shard", redundant_waits(kReduced, kUpdate),
        {{kGathered, 7}, {kReduced, 8}, {kFree, 14}, {kComputed, 4}});
  check("hpZ", redundant_waits(kReduced, kInnerPart),
        {{kGathered, 7}, {kReduced, 8}, {kFree, 14}, {kComputed, 4}});
  check("arena released", redundant_waits_for_released_memory(),
        {{kGathered, 7}, {kReduced, 12}, {kFree, 14}, {kComputed, 4}});
  check("hybrid_shard", redundant_waits(kReplicated, kUpdate),
        {{kGathered, 7}, {kReplicated, 8}, {kFree, 14}, {kComputed, 4}, {kScattered, 4}});
  check("hybrid_shard, narrow sum", redundant_waits_of_a_sum(),
        {{kGathered, 14},
         {kReplicated, 8},
         {kFree, 28},
         {kComputed, 4},
         {kScattered, 4},
         {kReturned, 4}});
}

// ---------------------------------------------------------------------------- ThreadSanitizer

namespace {

constexpr const char* kEdgeVariable = "FSDP_TEST_REMOVED_EDGE";  // "gather compute"

// The exit status of this program running the case below, with this edge removed.
int status_without(const std::string& edge) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = fmt::format(
      "{}='{}' TSAN_OPTIONS=halt_on_error=1:exitcode=66 '{}' --no-skip "
      "--test-case='child: one step without an edge' >/dev/null 2>&1",
      kEdgeVariable, edge, program);
  return std::system(command.c_str()) >> 8;
}

}  // namespace

TEST_CASE("child: one step without an edge" * doctest::skip()) {
  const char* edge = std::getenv(kEdgeVariable);
  REQUIRE(edge != nullptr);
  const std::string streams = edge;
  const size_t space = streams.find(' ');
  RunSpec s = spec({"full_shard", 2, {}, {}});
  s.steps = 2;
  train_without(s, {{streams.substr(0, space), streams.substr(space + 1)}}, 1);
}

TEST_CASE("ThreadSanitizer reports a removed edge" * doctest::skip(!kThreadSanitizer)) {
  CHECK(status_without("no such edge") == 0);
  for (const Edge& edge : settings()[0].edges) {
    CAPTURE(edge.first);
    CAPTURE(edge.second);
    CHECK(status_without(edge.first + " " + edge.second) == 66);
  }
}
