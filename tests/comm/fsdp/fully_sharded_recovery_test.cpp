// A step that throws on every rank, on the host or on a stream, leaves nothing behind: after
// recover() training goes on with the bits of a run in which it never happened.
#include <doctest/doctest.h>

#include "comm/fsdp/fully_sharded.h"
#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

enum class Moment : uint8_t { kForward, kBackward };

struct Setting {
  std::string what;
  int ranks;
  FsdpOptions options;
};

std::vector<Setting> settings() {
  using enum Strategy;
  return {{"one rank", 1, {}},
          {"full_shard", 3, {}},
          {"hpZ", 4, {.reshard_group_size = 2}},
          {"one stream, one in flight", 2, {.units_in_flight = 1, .separate_reduce = false}},
          {"arena released", 2, {.release_arena = true}},
          {"shard_grad_op", 2, {.strategy = kShardGradOp}},
          {"shard_grad_op, bf16",
           2,
           {.strategy = kShardGradOp, .param_dtype = DType::kBF16, .reduce_dtype = DType::kBF16}},
          {"shard_optimizer", 2, {.strategy = kShardOptimizer}},
          {"no_shard", 3, {.strategy = kNoShard}},
          {"hybrid, micro-steps",
           4,
           {.strategy = kHybridShard,
            .shard_size = 2,
            .accumulation = Accumulation::kReduceScatterEach,
            .micro_steps = 3}},
          {"reduce last", 2, {.accumulation = Accumulation::kReduceLast, .micro_steps = 2}}};
}

RunSpec spec(const Setting& setting) {
  RunSpec s;
  s.ranks = setting.ranks;
  s.fsdp = setting.options;
  s.steps = 4;
  s.training = true;
  return s;
}

// Runs the steps; in step 2 `fail` is called first and must leave an error behind.
RunResult train_with_failure(const RunSpec& s, const std::function<void(RankRun&)>& fail) {
  std::vector<RunResult> results(static_cast<size_t>(s.ranks));
  run_local_ranks(s.ranks, [&](Communicator& world) {
    RankRun run(world, s);
    for (int step = 0; step < s.steps; ++step) {
      if (step == 2) {
        fail(run);
        run.recover(2);
        for (const auto& unit : run.sharded().units()) {
          CHECK(unit->gradients->state() == GradientState::kNone);
          CHECK_FALSE(unit->gradients->backward_pending());
        }
      }
      run.step(step);
    }
    results[static_cast<size_t>(world.rank())] = run.result();
  });
  for (const RunResult& result : results) CHECK((result == results[0]));
  return results[0];
}

Module& find(Module& root, std::string_view name) {
  for (Module* module : root.modules()) {
    if (module->name() == name) return *module;
  }
  fail("no module {}", name);
}

// Step 2 throws when the `countdown`-th pass reaches this module.
void fail_in_hook(RankRun& run, const char* module_name, Moment moment, int countdown) {
  Module& module = find(run.module(), module_name);
  const auto count_down = [left = std::make_shared<int>(countdown)] {
    if (--*left == 0) fail("[test] a hook throws");
  };
  module.set_hooks(moment == Moment::kForward ? ModuleHooks{count_down, nullptr, nullptr, nullptr}
                                              : ModuleHooks{nullptr, nullptr, count_down, nullptr});
  CHECK(contains(error_of([&] { run.step(2); }), "a hook throws"));
  module.set_hooks({});
}

}  // namespace

TEST_CASE("a hook that throws, forward and backward, in the middle of the blocks") {
  for (const Setting& setting : settings()) {
    CAPTURE(setting.what);
    RunSpec s = spec(setting);
    for (const auto recompute :
         {RecomputeMode::kNone, RecomputeMode::kSelective, RecomputeMode::kFull}) {
      s.subject = causal_lm(small_gpt2(), recompute);
      const RunResult expected = train(s);
      for (const Moment moment : {Moment::kForward, Moment::kBackward}) {
        CAPTURE(static_cast<int>(moment));
        const int last = s.fsdp.micro_steps;
        CHECK((train_with_failure(s, [&](RankRun& run) {
                 fail_in_hook(run, "blocks.1.mlp", moment, last);
               }) == expected));
      }
    }
  }
}

TEST_CASE("a label out of range, noticed at once, or when the host has issued another step") {
  for (const Setting& setting : settings()) {
    for (const bool at_once : {true, false}) {
      CAPTURE(setting.what);
      CAPTURE(at_once);
      const RunSpec s = spec(setting);
      const auto fail = [&](RankRun& run) {
        run.bad_label = 1000;
        run.step(2);
        if (at_once) CHECK(contains(error_of([&] { run.wait(); }), "got 1000 in row 0"));
        run.bad_label = 0;
        if (at_once) return;
        run.step(3);
        CHECK(contains(error_of([&] { run.wait(); }), "got 1000 in row 0"));
      };
      CHECK((train_with_failure(s, fail) == train(s)));
    }
  }
}

TEST_CASE("twice in a row, and after an evaluation") {
  RunSpec s = spec({"", 2, {}});
  const auto fail = [&](RankRun& run) {
    fail_in_hook(run, "blocks.2.attention", Moment::kBackward, 1);
    run.recover(2);
    run.sharded().reset();
    fail_in_hook(run, "blocks.0.attention", Moment::kForward, 1);
  };
  CHECK((train_with_failure(s, fail) == train(s)));
}

TEST_CASE(
    "evaluations between steps, without gradients: every rank's own, and no bit of training") {
  for (const Setting& setting : settings()) {
    CAPTURE(setting.what);
    RunSpec s = spec(setting);
    const RunResult expected = train(s);
    s.before_step = evaluate_between_steps;
    CHECK((train(s) == expected));
  }
}
