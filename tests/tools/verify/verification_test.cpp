// A pass and a training run held against folders of reference results: within the limits, and above
// exactly the limit of what was spoiled. Every family, dtype and number of ranks:
// tests/e2e/verify_models.sh, tests/e2e/verify_fsdp.sh.
#include "tools/verify/verification.h"

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/support/reference_copy.h"

namespace fsdp::tools {
namespace {

// What rank 0 reports; all ranks report the same.
Report verify_on(int ranks, const ExpectedResults& expected,
                 const VerificationOptions& options = {}) {
  Report report;
  comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
    RankContext rank{.world = world};
    const Report mine = verify(rank, expected, options);
    if (world.rank() == 0) report = mine;
  });
  return report;
}

std::vector<std::string> above_their_limits(const Report& report) {
  std::vector<std::string> out;
  for (const Check& check : report.checks()) {
    if (!check.passed()) out.push_back(check.name);
  }
  return out;
}

TEST_CASE("a pass, texts and a training run: within the limits, sharded and not") {
  const ExpectedResults expected = read_expected_results(
      test::fixture_path("models/gpt2"), {.dtype = DType::kF64, .trajectory = true});
  for (const auto strategy : {comm::Strategy::kFullShard, comm::Strategy::kNoShard}) {
    const Report report = verify_on(2, expected, {.strategy = strategy});
    CHECK(report.passed());
    for (const char* name : {"logits", "loss", "gradients", "generation alone, with cache",
                             "loss of every step", "final parameters"}) {
      CAPTURE(name);
      CHECK(std::any_of(report.checks().begin(), report.checks().end(),
                        [&](const Check& check) { return check.name == name; }));
    }
  }
}

TEST_CASE("documents in a row do not see each other: equal to transformers on 1 to 4 ranks") {
  for (const char* name : {"llama_documents", "mistral_documents", "gpt2_documents"}) {
    CAPTURE(name);
    ExpectedResults expected =
        read_expected_results(test::fixture_path("models") / name, {.dtype = DType::kF64});
    for (int ranks = 1; ranks <= 4; ++ranks)
      CHECK(above_their_limits(verify_on(ranks, expected)).empty());
    expected.pass->batch.first_key.clear();  // positions still begin again
    CHECK(above_their_limits(verify_on(2, expected)) ==
          std::vector<std::string>{"logits", "loss", "gradients"});
  }
}

TEST_CASE("what is spoiled in the folder is above its limit, and nothing else is") {
  const test::ReferenceCopy copy("models/gpt2");
  copy.set("reference.json", "/loss_f64", 5.3);
  copy.set("reference.json", "/trajectory/steps/1/loss_f64", 5.0);
  const ExpectedResults expected =
      read_expected_results(copy.path(), {.dtype = DType::kF64, .trajectory = true});
  const Report report = verify_on(1, expected);
  CHECK(above_their_limits(report) == std::vector<std::string>{"loss", "loss of every step"});
  for (const Check& check : report.checks()) {
    if (check.name == "loss of every step") CHECK(check.worst == "step 2");
  }
}

TEST_CASE("the f64 run excuses rounding of f32, and no wrong step") {
  const test::ReferenceCopy copy("fsdp/gpt2_fp32_w2");
  ExpectedResults expected = read_expected_results(copy.path(), {.all_variants = false});
  REQUIRE(expected.trajectories.size() == 1);
  ExpectedTraining& trajectory = expected.trajectories.front();
  trajectory.parameter_limit = 1e-9;  // less than f32 rounds
  CHECK_FALSE(verify_on(2, expected, {.arbitrate = false}).passed());
  trajectory.steps[2].loss += 0.5;
  trajectory.parameter_limit = 1;
  CHECK(above_their_limits(verify_on(2, expected)) ==
        std::vector<std::string>{"loss of every step"});
}

}  // namespace
}  // namespace fsdp::tools
