// A frozen model with trainable low-rank terms, sharded: the bits of one rank under every strategy,
// with dropout and recompute, and nothing of the frozen part is reduced or moved.
// Requirements: S3.12.
#include <doctest/doctest.h>

#include "tests/support/lora_models.h"

namespace fsdp::comm {
namespace {

using test::RunResult;
using test::RunSpec;

TEST_CASE("low-rank terms: every strategy and recompute give the bits of one rank") {
  using enum Strategy;
  for (const models::ModelConfig& model : {test::small_gpt2(), test::small_llama()}) {
    for (const int ranks : {2, 3}) {
      RunSpec spec = {
          .subject = test::lora_causal_lm(model, 0.3), .ranks = ranks, .training = true};
      spec.fsdp.fixed_order = true;
      const RunResult expected = test::train_as_one_rank(spec);
      for (const Strategy strategy : {kFullShard, kShardGradOp, kNoShard}) {
        CAPTURE(choice_name(strategy));
        spec.fsdp.strategy = strategy;
        CHECK((test::train(spec) == expected));
      }
      spec.fsdp.strategy = kFullShard;
      for (const RecomputeMode mode : {RecomputeMode::kSelective, RecomputeMode::kFull}) {
        spec.subject = test::lora_causal_lm(model, 0.3, mode);
        CHECK((test::train(spec) == expected));
      }
    }
  }
}

TEST_CASE("low-rank terms: only they move, and only they have gradients and reductions") {
  RunSpec spec = {.subject = test::lora_causal_lm(test::small_llama(), 0), .keep_gradients = true};
  const RunResult trained = test::train(spec);
  spec.steps = 0;
  const RunResult before = test::train(spec);
  for (const auto& [name, values] : trained.parameters) {
    CAPTURE(name);
    const bool term = name.find(".lora_") != std::string::npos;
    CHECK((values != before.parameters.at(name)) == term);
    CHECK(trained.gradients.contains(name) == term);
  }
}

TEST_CASE("low-rank terms: visiting only them gathers nothing else") {
  run_local_ranks(2, [](Communicator& world) {
    test::RankRun run(world, {.subject = test::lora_causal_lm(test::small_llama(), 0)});
    run.wait();
    run.backend().set_trace(&run.trace);
    int64_t visited = 0, gathered = 0, expected = 0;
    visit_parameters(
        run.sharded(),
        [&](const Parameter& p, const Tensor& values) {
          CHECK(models::is_lora(p));
          visited += values.numel();
        },
        models::is_lora);
    run.wait();
    run.backend().set_trace(nullptr);
    for (Parameter* p : run.module().parameters()) {
      if (models::is_lora(*p)) expected += p->numel();
    }
    CHECK(visited == expected);
    for (const TraceEvent& e : run.trace.events()) {
      if (e.name == "all_gather") gathered += e.bytes;
    }
    CHECK(gathered >= 4 * expected);
    CHECK(gathered < 8 * expected);  // padding
  });
}

}  // namespace
}  // namespace fsdp::comm
