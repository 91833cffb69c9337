// Where the time of a step goes: sums, and what is waited for.
#include "tools/plan/step_shares.h"

#include <doctest/doctest.h>

#include "tests/support/plan_questions.h"

namespace fsdp::tools {
namespace {

using test::plan_question;
using test::rates_for;

StepShares shares_of(const PlanQuestion& question, int nodes) {
  return plan_job(question, {nodes}, rates_for(question)).shares;
}

TEST_CASE("step shares: one rank waits for nobody") {
  PlanQuestion question = plan_question({"train.rows_per_pass=2"});
  question.rates.ranks_per_node = 1;
  question.rates.issue_us = 0;
  const StepShares shares = shares_of(question, 1);
  CHECK(shares.gather_s == 0);
  CHECK(shares.reduce_s == 0);
  CHECK(shares.transfer_s == 0);
  CHECK(shares.products_s > 0);
  CHECK(shares.passes_s > 0);
  CHECK(shares.bound() != "host");
}

TEST_CASE("step shares: what is slower is what is waited for, and all else stays") {
  PlanQuestion question = plan_question({"train.rows_per_pass=2", "fsdp.strategy=shard_optimizer"});
  question.rates.issue_us = 0;
  question.rates.interference = 0;
  const StepShares near = shares_of(question, 2);
  question.rates.between_nodes.bytes_per_s /= 1000;
  const StepShares far = shares_of(question, 2);
  CHECK(far.products_s == doctest::Approx(near.products_s));
  CHECK(far.passes_s == doctest::Approx(near.passes_s));
  CHECK(far.reduce_s > 10 * near.reduce_s);
  CHECK(far.step_s() - near.step_s() == doctest::Approx(far.waiting_s() - near.waiting_s()));
}

// Passes are run one by one; of many micro-steps few are, for all (tools/predict/meta_run.h).
TEST_CASE("step shares: few micro-steps that stand for many, and all of them one by one") {
  for (const std::string strategy : {"full_shard", "shard_grad_op"}) {
    const auto shares = [&](const std::string& rows) {
      PlanQuestion question = plan_question({"fsdp.strategy=" + strategy, rows});
      question.config.train.batch = 64;
      question.rates.between_nodes.bytes_per_s /= 10;  // so that there is something to wait for
      return shares_of(question, 2);
    };
    const StepShares few = shares("train.micro_steps=16"), all = shares("train.rows_per_pass=1");
    CAPTURE(strategy);
    for (auto share : {&StepShares::products_s, &StepShares::passes_s, &StepShares::gather_s,
                       &StepShares::reduce_s}) {
      CHECK(few.*share == doctest::Approx(all.*share).epsilon(2e-3));
      CHECK(few.*share > 0);
    }
    CHECK(few.step_s() == doctest::Approx(all.step_s()).epsilon(1e-3));
  }
}

TEST_CASE("step shares: by hand") {
  // 10 ms: 0-2 nothing, 2-5 product, gather 1-6, 5-6 its rest, 6-8 pass, all-reduce 8-9, nothing.
  const auto call = [](const char* name, const char* stream, double begin_ms, double end_ms,
                       bool computes) {
    return StepCall{.name = name,
                    .computes = computes,
                    .stream = stream,
                    .begin_ms = begin_ms,
                    .end_ms = end_ms};
  };
  StepCall product = call("matmul", "compute", 2, 5, true);
  product.product.emplace();
  const StepShares found =
      step_shares({call("all_gather", "gather", 1, 6, false), product,
                   call("add", "compute", 6, 8, true), call("all_reduce", "compute", 8, 9, true)},
                  10);
  CHECK(found.products_s == doctest::Approx(3e-3));
  CHECK(found.passes_s == doctest::Approx(2e-3));
  CHECK(found.gather_s == doctest::Approx(2e-3));
  CHECK(found.reduce_s == doctest::Approx(1e-3));
  CHECK(found.host_s == doctest::Approx(2e-3));
  CHECK(found.step_s() == doctest::Approx(10e-3));
  CHECK(found.bound() == "compute");
}

}  // namespace
}  // namespace fsdp::tools
