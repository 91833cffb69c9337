// One job: the run that explain and memory know, and what is made of its numbers.
// Requirements: S2.6.
#include "tools/plan/planned_job.h"

#include <cmath>

#include <doctest/doctest.h>

#include "tests/support/plan_questions.h"
#include "tests/support/temp_folder.h"
#include "tools/plan/failures.h"
#include "tools/predict/memory_view.h"
#include "tools/train/config_to_session.h"

namespace fsdp::tools {
namespace {

using test::plan_question;
using test::rates_for;

TEST_CASE("planned job: its memory and time are those of fsdp memory") {
  PlanQuestion question = plan_question({"train.rows_per_pass=2"});
  question.rates.ranks_per_node = 4;  // all in a node, as on the machine of eight
  for (const std::vector<std::string>& overrides :
       {std::vector<std::string>{},
        {"fsdp.strategy=no_shard", "train.recompute.mode=full"},
        {"fsdp.strategy=hybrid_shard", "fsdp.shard_size=2", "fsdp.offload=all"}}) {
    const PlannedJob job = plan_job(question, {1, overrides}, rates_for(question));
    CHECK(job.gpus == 4);
    CHECK(job.shape == "2 x 2");
    const MemoryView view = view_memory(
        job.config, {.ranks = 4, .device = gpu_memory("A100-80", 4), .rates = "A100-80"});
    CHECK(job.peak_bytes == view.planned.bytes);
    CHECK(job.host_bytes == view.planned.run->host_needed());
    CHECK(job.step_s == doctest::Approx(1e-3 * view.planned.run->step_ms()).epsilon(1e-12));
  }
}

TEST_CASE("planned job: shares are a step, utilization and cost are of tokens") {
  PlanQuestion question = plan_question({"train.rows_per_pass=2"});
  question.tokens = 1e9;
  question.price_per_gpu_hour = 3;
  const PlannedJob job = plan_job(question, {1, {}}, rates_for(question));
  CHECK(job.shares.step_s() == doctest::Approx(job.step_s).epsilon(1e-9));
  CHECK(job.tokens_per_step == 16 * 128);
  CHECK(job.tokens_per_s_gpu() == doctest::Approx(16 * 128 / job.step_s / 2));
  CHECK(*job.days == doctest::Approx(1e9 / (16 * 128) * job.step_s / 86400));
  CHECK(*job.cost == doctest::Approx(*job.days * 24 * 2 * 3));
  CHECK(job.useful_share == 1);
  CHECK(!job.checkpoint_every_s);
  const models::ModelConfig model = models::preset("gpt2-124m");
  // By hand: 6 x 124,439,808 + 12 x 12 layers x 768 x 1024.
  CHECK(model_flops_per_token(model, 1024) == 6.0 * 124439808 + 12.0 * 12 * 768 * 1024);
  question.rates.peak_flops_per_s = {{DType::kBF16, 1e12}};
  const PlannedJob again = plan_job(question, {1, {}}, rates_for(question));
  CHECK(*again.mfu == doctest::Approx(job.tokens_per_s_gpu() / 1e12 *
                                      model_flops_per_token(model_config(again.config, 0), 128)));
}

TEST_CASE("planned job: failures take a share of the time, and say how often to save") {
  PlanQuestion question = plan_question({"train.rows_per_pass=2"});
  question.tokens = 1e9;
  const double days = *plan_job(question, {1, {}}, rates_for(question)).days;
  question.failures_per_gpu_day = 4;
  question.checkpoint_s = 20;
  const PlannedJob job = plan_job(question, {1, {}}, rates_for(question));
  const Failures failures = {
      .mean_s = 86400.0 / 8, .checkpoint_s = 20, .restart_s = question.restart_s};
  CHECK(*job.checkpoint_every_s == best_interval_s(failures));
  CHECK(job.useful_share == useful_share(failures, best_interval_s(failures)));
  CHECK(*job.days == doctest::Approx(days / job.useful_share));
  // Without a number: as the node's disk writes it.
  question.checkpoint_s.reset();
  question.rates.disk_write = {.bytes_per_s = 1e6};
  const PlannedJob slow = plan_job(question, {1, {}}, rates_for(question));
  question.rates.disk_write = {.bytes_per_s = 2e6};
  CHECK(slow.checkpoint_s ==
        doctest::Approx(2 * plan_job(question, {1, {}}, rates_for(question)).checkpoint_s));
}

TEST_CASE("planned job: what bounds it") {
  PlanQuestion question = plan_question({"train.rows_per_pass=1"});
  question.rates.between_nodes.bytes_per_s = 1e6;
  PlannedJob slow_links = plan_job(question, {2, {}}, rates_for(question));
  CHECK((slow_links.bound == "gather" || slow_links.bound == "reduce"));
  look_at_latency(question, slow_links);
  CHECK((slow_links.bound == "gather" || slow_links.bound == "reduce"));
  question = plan_question({"train.rows_per_pass=1"});
  question.rates.between_nodes.hop_us = 1e5;
  PlannedJob far = plan_job(question, {2, {}}, rates_for(question));
  look_at_latency(question, far);
  CHECK(far.bound == "latency");
  CHECK(far.latency_s > 0.5 * far.step_s);
  question = plan_question({"train.rows_per_pass=1"});
  question.rates.issue_us = 1e5;
  CHECK(plan_job(question, {1, {}}, rates_for(question)).bound == "host");
  // Few tokens, many parameters to update.
  question = plan_question({"model.vocab_size=100000", "data.sequence_length=8"});
  question.rates.issue_us = 0;
  question.rates.memory_bytes_per_s = 1e9;
  CHECK(plan_job(question, {1, {}}, rates_for(question)).bound == "memory");
  question = plan_question({"train.rows_per_pass=1", "fsdp.offload=all"});
  question.rates.host_copy.bytes_per_s = 1e6;
  CHECK(plan_job(question, {1, {}}, rates_for(question)).bound == "transfer");
}

TEST_CASE("planned job: what does not fit is an error of its own") {
  const PlanQuestion question = plan_question({"train.rows_per_pass=2"});
  CHECK_THROWS_AS(plan_job(question, {1, {}}, rates_for(question), 1000), TooMuchMemory);
  const PlanQuestion whole = plan_question({});
  CHECK(test::error_of([&] {
          plan_job(whole, {64, {}}, rates_for(whole));
        }) == "train.batch: 16 rows are too few for 128 GPUs");
}

}  // namespace
}  // namespace fsdp::tools
