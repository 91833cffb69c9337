// Activation recompute inside units: the same bits with dropout on, no gather more, less activation
// memory; and pieces in which nothing needs a gradient.
// Requirements: S0.7, S4.11.
#include "core/recompute.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

constexpr RecomputeMode kNone = RecomputeMode::kNone;
constexpr RecomputeMode kSelective = RecomputeMode::kSelective;
constexpr RecomputeMode kFull = RecomputeMode::kFull;
constexpr RecomputeMode kOffload = RecomputeMode::kOffload;

RunSpec dropout_spec(const models::ModelConfig& model, RecomputeMode mode, int64_t every = 1) {
  RunSpec s;
  s.subject = causal_lm(model, mode, every);
  s.training = true;
  s.keep_gradients = true;
  return s;
}

struct StepTotals {
  int64_t gathers = 0;
  size_t activations = 0;  // peak bytes
};

StepTotals cost_of(const RunSpec& s) {
  std::vector<StepTotals> costs(static_cast<size_t>(s.ranks));
  run_local_ranks(s.ranks, [&](Communicator& world) {
    RankRun run(world, s);
    run.step(0);
    run.step(1);
    run.wait();
    costs[static_cast<size_t>(world.rank())] = {
        run.sharded().mesh().gather().count(Collective::kAllGather).calls,
        run.backend().ledger().usage().peak[static_cast<size_t>(MemoryCategory::kActivation)]};
  });
  return costs[0];
}

}  // namespace

TEST_CASE("recompute gives the same bits, dropout included") {
  for (const models::ModelConfig& model : {small_gpt2(), small_llama()}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int ranks : {1, 2, 3}) {
        CAPTURE(model.family);
        CAPTURE(ranks);
        RunSpec s = dropout_spec(model, kNone);
        s.ranks = ranks;
        s.fsdp.param_dtype = dtype;
        const RunResult expected = train(s);
        for (const int64_t every : {1, 2, 3}) {
          for (const RecomputeMode mode : {kSelective, kFull, kOffload}) {
            RunSpec again = dropout_spec(model, mode, every);
            again.ranks = ranks;
            again.fsdp = s.fsdp;
            CHECK((train(again) == expected));
          }
        }
      }
    }
  }
}

TEST_CASE("recompute under other schedules and micro-steps") {
  RunSpec s = dropout_spec(small_gpt2(), kNone);
  s.ranks = 4;
  s.fsdp.micro_steps = 3;
  for (const Accumulation accumulation : {Accumulation::kReduceEach, Accumulation::kReduceLast}) {
    for (const int in_flight : {1, 2}) {
      s.fsdp.accumulation = accumulation;
      s.fsdp.units_in_flight = in_flight;
      s.fsdp.reshard_group_size = 2;
      s.subject = causal_lm(small_gpt2());
      const RunResult expected = train(s);
      for (const RecomputeMode mode : {kSelective, kFull, kOffload}) {
        s.subject = causal_lm(small_gpt2(), mode);
        CHECK((train(s) == expected));
      }
    }
  }
}

TEST_CASE("recompute gathers nothing again and holds less") {
  const StepTotals kept = cost_of(dropout_spec(small_gpt2(), kNone));
  const StepTotals some = cost_of(dropout_spec(small_gpt2(), kFull, 2));
  const StepTotals all = cost_of(dropout_spec(small_gpt2(), kFull));
  const StepTotals selective = cost_of(dropout_spec(small_gpt2(), kSelective));
  CHECK(kept.gathers == 2 * 7);
  CHECK(some.gathers == kept.gathers);
  CHECK(all.gathers == kept.gathers);
  CHECK(some.activations < kept.activations);
  CHECK(all.activations < some.activations);
  CHECK(selective.gathers == kept.gathers);
  CHECK(selective.activations < kept.activations);
  CHECK(all.activations < selective.activations);
  const StepTotals offloaded = cost_of(dropout_spec(small_gpt2(), kOffload));
  CHECK(offloaded.gathers == kept.gathers);
}

// Of eight blocks' inputs two are on the device while backward runs a block again: that block's,
// and the one before it. At full recompute all those are that backward has not come to.
TEST_CASE("recompute whose inputs wait on the host holds as much for eight blocks as for three") {
  const auto activations = [](RecomputeMode mode, int64_t blocks) {
    models::ModelConfig model = small_gpt2();
    model.layers = blocks;
    return cost_of(dropout_spec(model, mode)).activations;
  };
  CHECK(activations(kOffload, 8) == activations(kOffload, 3));
  CHECK(activations(kOffload, 8) < activations(kFull, 8));
  // Six rows of seven tokens on each of two ranks, 24 wide, f32.
  const size_t input = rounded_bytes(size_t{6} * 7 * 24 * 4);
  CHECK(activations(kFull, 8) == activations(kFull, 3) + 5 * input);
}

TEST_CASE("recompute whose inputs wait on the host, beside masters that do, from slow streams") {
  for (const int ranks : {1, 2, 4}) {
    RunSpec s = dropout_spec(small_llama(), kNone);
    s.ranks = ranks;
    const RunResult expected = train(s);
    s.subject = causal_lm(small_llama(), kOffload);
    for (const Offload offload :
         {Offload::kNone, Offload::kOptimizer, Offload::kAll, Offload::kNvme}) {
      for (const uint64_t seed : {1, 2, 3}) {
        s.fsdp.offload = offload;
        s.cpu = [seed](int) { return random_delays(seed, 300); };
        s.host = [seed](int) { return random_delays(seed + 10, 300); };
        CHECK((train(s) == expected));
      }
    }
  }
}

TEST_CASE("recompute whose inputs wait on the host: after a step that threw, training goes on") {
  RunSpec s;
  const RunResult expected = train(s);
  s.subject = causal_lm(small_gpt2(), kOffload);
  run_local_ranks(s.ranks, [&](Communicator& world) {
    RankRun run(world, s);
    run.step(0);
    run.bad_label = 1000;
    run.step(1);
    CHECK(contains(error_of([&] { run.wait(); }), "got 1000 in row 0"));
    run.bad_label = 0;
    run.recover(1);
    for (int step = 1; step < s.steps; ++step) run.step(step);
    CHECK((run.result() == expected));
  });
}

// Recompute leaves each of them before its backward begins.
TEST_CASE("recompute of a block whose attention and MLP are units gathers each once more") {
  constexpr int64_t kSteps = 2, kUnits = 2 * 3;
  const auto cost = [](RecomputeMode mode) {
    RunSpec s = dropout_spec(small_gpt2(), mode);
    s.wrap = wrap_classes({"GPT2Attention", "GPT2MLP"});
    return cost_of(s);
  };
  const StepTotals kept = cost(kNone), all = cost(kFull);
  CHECK(kept.gathers == kSteps * (1 + 2 * kUnits));
  CHECK(all.gathers == kSteps * (1 + 3 * kUnits));
  CHECK(all.activations < kept.activations);
}

TEST_CASE("recompute with frozen parameters, also where nothing needs a gradient") {
  const auto frozen_front = [](const Parameter& p) {
    return p.name().starts_with("embedding.") || p.name().starts_with("blocks.0.");
  };
  const auto frozen_block = [](const Parameter& p) { return p.name().starts_with("blocks.1."); };
  for (const std::function<bool(const Parameter&)>& frozen :
       {std::function<bool(const Parameter&)>(frozen_front),
        std::function<bool(const Parameter&)>(frozen_block)}) {
    for (const int ranks : {1, 2}) {
      RunSpec s = dropout_spec(small_gpt2(), kNone);
      s.ranks = ranks;
      s.frozen = frozen;
      const RunResult expected = train(s);
      for (const RecomputeMode mode : {kSelective, kFull, kOffload}) {
        s.subject = causal_lm(small_gpt2(), mode);
        CHECK((train(s) == expected));
      }
    }
  }
}

TEST_CASE("a block below which nothing is trained is neither run again nor gathered in backward") {
  for (const RecomputeMode mode : {kNone, kSelective, kFull, kOffload}) {
    CAPTURE(static_cast<int>(mode));
    RunSpec s = dropout_spec(small_gpt2(), mode);
    s.frozen = [](const Parameter& p) {
      return p.name().starts_with("embedding.") || p.name().starts_with("blocks.0.");
    };
    // Two steps: the root's two segments and three blocks forward, two blocks backward. That
    // backward does not come to block 0 is learnt in the first, from a prefetch in vain.
    CHECK(cost_of(s).gathers == 2 * (2 + 3 + 2) + 1);
  }
}
