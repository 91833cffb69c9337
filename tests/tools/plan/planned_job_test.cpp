// One job: the run that explain and memory know, and what is made of its numbers.
// Requirements: S2.6.
#include "tools/plan/planned_job.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <doctest/doctest.h>

#include "tests/support/plan_questions.h"
#include "tests/support/temp_folder.h"
#include "tests/support/validation_bars.h"
#include "tools/predict/machines.h"
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
namespace {

TEST_CASE("failures: the best interval begins as Young's and ends at the mean time") {
  // sqrt(2 x 60 x 86400) = 3219.9 (Young); Daly adds a third of sqrt(d / 2M), and takes d off.
  CHECK(best_interval_s({.mean_s = 86400, .checkpoint_s = 60}) ==
        doctest::Approx(3219.94 * (1 + std::sqrt(60 / 172800.0) / 3 + 60 / 172800.0 / 9) - 60));
  CHECK(best_interval_s({.mean_s = 100, .checkpoint_s = 250}) == 100);
}

TEST_CASE("failures: hardly any loses only the checkpoints, and many lose almost all") {
  const Failures rare = {.mean_s = 1e9, .checkpoint_s = 10, .restart_s = 300};
  CHECK(useful_share(rare, 990) == doctest::Approx(0.99).epsilon(1e-5));
  // By hand: 1000 / (1000 e^0.1 (e^1.01 - 1)).
  CHECK(useful_share({.mean_s = 1000, .checkpoint_s = 10, .restart_s = 100}, 1000) ==
        doctest::Approx(0.518353).epsilon(1e-5));
  CHECK(useful_share({.mean_s = 10, .checkpoint_s = 100, .restart_s = 0}, 10) < 1e-4);
}

TEST_CASE("failures: no other interval leaves more time for work") {
  for (const double checkpoint_s : {1.0, 30.0, 300.0}) {
    const Failures failures = {.mean_s = 7200, .checkpoint_s = checkpoint_s, .restart_s = 120};
    const double best_s = best_interval_s(failures), best = useful_share(failures, best_s);
    for (const double factor : {0.5, 0.8, 1.25, 2.0}) {
      CHECK(useful_share(failures, factor * best_s) < best);
    }
  }
}

}  // namespace
namespace {

TEST_CASE("validated range: as the published rows are") {
  std::map<std::string, ValidatedRange> there;
  const auto add = [](std::vector<std::string>& all, const std::string& name) {
    if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
    std::sort(all.begin(), all.end());
  };
  for (const PublishedRow& row : test::rows_of("")) {
    ValidatedRange& range = there[row.machine];
    range.longest = std::max(range.longest, row.seq);
    range.most_gpus = std::max(range.most_gpus, row.gpus);
    const DType dtype = parse_dtype(row.param_dtype);
    CHECK((range.machine.empty() || range.dtype == dtype));
    range.machine = row.machine;
    range.dtype = dtype;
    add(range.strategies, row.strategy);
    add(range.recompute, row.recompute);
  }
  CHECK(there.size() == validated_ranges().size());
  for (const ValidatedRange& range : validated_ranges()) {
    CAPTURE(range.machine);
    const ValidatedRange& of_rows = there[range.machine];
    CHECK(of_rows.longest == range.longest);
    CHECK(of_rows.most_gpus == range.most_gpus);
    CHECK(of_rows.dtype == range.dtype);
    CHECK(of_rows.strategies == range.strategies);
    CHECK(of_rows.recompute == range.recompute);
  }
}

std::vector<std::string> said(const std::string& machine, const std::vector<config::Override>& keys,
                              int gpus, const Rates& rates) {
  PlannedJob job;
  job.config = config::read_config("", keys);
  job.gpus = gpus;
  return outside_of_validation({.gpu = machine, .rates = rates}, job);
}

std::vector<std::string> said(const std::string& machine, const std::vector<config::Override>& keys,
                              int gpus) {
  return said(machine, keys, gpus, machine_rates(machine));
}

TEST_CASE("validated range: each thing that no published step had is a line") {
  using Lines = std::vector<std::string>;
  CHECK(said("H100", {"train.dtype=bf16", "data.sequence_length=65536"}, 512).empty());
  CHECK(said("B200", {"train.dtype=bf16"}, 8) == Lines{"not validated: no published step on B200"});
  CHECK(said("H100", {"train.dtype=f16"}, 8) ==
        Lines{"not validated: f16; published steps on H100 have bf16"});
  CHECK(said("H100-EFA",
             {"train.dtype=f32", "data.sequence_length=8192", "fsdp.strategy=hybrid_shard",
              "fsdp.shard_size=8", "fsdp.offload=optimizer", "train.recompute.mode=full"},
             512) ==
        Lines{"not validated: f32; published steps on H100-EFA have bf16",
              "not validated: 8192 tokens a row; published steps on H100-EFA have up to 4096",
              "not validated: 512 GPUs; published steps on H100-EFA have up to 256",
              "not validated: fsdp.strategy hybrid_shard; published steps on H100-EFA have "
              "no_shard, shard_optimizer",
              "not validated: train.recompute.mode full; published steps on H100-EFA have none",
              "not validated: fsdp.offload optimizer; published steps on H100-EFA have none"});
}

TEST_CASE("validated range: other rates than the machine's, other nodes") {
  Rates rates = machine_rates("H100");
  rates.ranks_per_node = 4;
  CHECK(
      said("H100", {"train.dtype=bf16"}, 8, rates) ==
      std::vector<std::string>{"not validated: 4 GPUs in a node; published steps on H100 have 8"});
  CHECK(said("H100", {"train.dtype=bf16"}, 8, machine_rates("A100-80")) ==
        std::vector<std::string>{
            "not validated: the times are those of an A100 80 GB, eight in a machine; the memory "
            "is that of H100, whatever --rates says"});
}

}  // namespace
}  // namespace fsdp::tools
