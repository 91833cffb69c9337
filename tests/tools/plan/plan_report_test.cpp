// The table, the reasons, the configuration and the picture of a plan.
#include "tools/plan/plan_report.h"

#include <doctest/doctest.h>

#include "tests/support/plan_questions.h"
#include "tests/support/temp_folder.h"
#include "tools/config/key_values.h"
#include "tools/plan/plan_defaults.h"

namespace fsdp::tools {
namespace {

using test::contains;
using test::plan_question;

Plan searched(const std::vector<config::Override>& overrides) {
  Plan plan = {.question = plan_question(overrides), .model = "a model", .searched = true};
  plan.question.tokens = 1e9;
  plan.question.price_per_gpu_hour = 2;
  plan.found = search_plans(plan.question, {.nodes = {1, 2}, .top = 3});
  return plan;
}

TEST_CASE("plan report: text and JSON have the same jobs") {
  const Plan plan = searched({});
  const std::string text = format_plan(plan);
  const Json json = plan_json(plan);
  REQUIRE(json.at("rows").size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    const PlannedJob& job = plan.found.best[i];
    const Json& row = json.at("rows")[i];
    for (const char* const key :
         {"nodes", "gpus", "config", "step_s", "tokens_per_s_gpu", "mfu", "exposed_s", "peak_bytes",
          "bound", "days", "cost", "useful_share", "checkpoint_every_s", "warnings"}) {
      CHECK(row.contains(key));
    }
    CHECK(row.at("step_s").get<double>() == job.step_s);
    CHECK(row.at("config").at("train.batch").text() == "16");
    CHECK(contains(text, fmt::format("{:.0f}", job.tokens_per_s_gpu())));
    CHECK(row.at("fits").get<bool>());
  }
  CHECK(contains(text, "candidates: "));
  CHECK(contains(text, "why the first: "));
  CHECK(contains(text, "# the first on "));
  CHECK(json.at("yaml").text() == short_yaml(plan.found.best.front().config));
}

TEST_CASE("plan report: why the first beats the second") {
  PlannedJob a = {.gpus = 8, .step_s = 1, .tokens_per_step = 1000};
  a.shares = {.products_s = 0.8, .passes_s = 0.1, .gather_s = 0.1};
  PlannedJob b = a;
  CHECK(why_better(a, b, Best::kCheapest) == "the same within a thousandth of a step");
  b.shares.gather_s = 0.3;
  b.shares.passes_s = 0.05;
  CHECK(why_better(a, b, Best::kCheapest) ==
        "+200 ms waiting for gathers, -50.0 ms in kernels that move memory");
  b = a;  // half the GPUs, twice the time: as many GPU seconds
  b.gpus = 4;
  for (auto share : {&StepShares::products_s, &StepShares::passes_s, &StepShares::gather_s}) {
    b.shares.*share *= 2;
  }
  CHECK(why_better(a, b, Best::kCheapest) == "the same within a thousandth of a step");
  CHECK(test::contains(why_better(a, b, Best::kFastest), "+800 ms in products and attention"));
}

TEST_CASE("plan report: the configuration is short and means the same") {
  const PlanQuestion question =
      plan_question({"train.lr=3e-5", "fsdp.strategy=hybrid_shard", "fsdp.shard_size=2",
                     "train.recompute.mode=full", "data.train=[a.txt, \"b, c.txt\"]"});
  const std::string yaml = short_yaml(question.config);
  CHECK(config::key_values(config::parse_config(yaml, "plan.yaml", {})) ==
        config::key_values(question.config));
  CHECK(contains(yaml, "train:\n"));
  CHECK(!contains(yaml, "clip_norm"));
}

TEST_CASE("plan report: a job that does not fit says so") {
  Plan plan = {.question = plan_question({"train.rows_per_pass=1"}), .model = "a model"};
  plan.question.safety = 0.99999;
  plan.found.best = plan_each(plan.question, {1});
  CHECK(contains(format_plan(plan), "  NO  "));
  CHECK(!plan_json(plan).at("rows")[0].at("fits").get<bool>());
  plan.found.best.clear();
  CHECK(contains(format_plan(plan), "nothing fits\n"));
}

TEST_CASE("plan defaults: what a configuration leaves out, each with a line") {
  config::TrainConfig config = config::read_config("", {"model.preset=gpt2-124m"});
  const Rates rates = machine_rates("H100");
  const auto notes = take_plan_defaults(config, rates, {16}, /*searches=*/false);
  CHECK(notes ==
        std::vector<std::string>{"train.dtype was not given: bf16 is taken",
                                 "data.sequence_length was not given: 1024 is taken",
                                 "train.batch was not given: 4096 is taken, 4194304 tokens a step",
                                 "train.rows_per_pass was not given: 1 is taken"});
  CHECK(*config.train.batch == 4096);
  CHECK(take_plan_defaults(config, rates, {16}, false).empty());
  config = config::read_config("", {"model.preset=gpt2-124m", "train.dtype=f32",
                                    "data.sequence_length=64", "train.batch=48"});
  CHECK(take_plan_defaults(config, rates, {16}, true).empty());
  config = config::read_config("", {"model.preset=gpt2-124m"});
  take_plan_defaults(config, machine_rates("V100-32"), {8}, true);
  CHECK(config.train.dtype == DType::kF16);  // that GPU has no bf16
  config = config::read_config("", {"model.preset=gpt2-124m"});
  take_plan_defaults(config, rates, {32, 40}, true);
  CHECK(*config.train.batch == 16 * 160);  // both deal it evenly
}

TEST_CASE("scaling plot: points, what is ideal, and nothing for one number of GPUs") {
  CHECK(scaling_plot({{8, 100, "a"}, {8, 90, "b"}}).empty());
  const std::string svg = scaling_plot({{32, 300, "c"}, {8, 100, "a"}, {8, 90, "<b>"}});
  CHECK(svg.starts_with("<svg "));
  CHECK(contains(svg, "100, 100 %"));
  CHECK(contains(svg, "300, 75 %"));
  CHECK(!contains(svg, "<b>"));  // slower than another of 8
  CHECK(contains(scaling_plot({{1, 1, "<b>"}, {2, 2, ""}}), "&lt;b&gt;"));
}

}  // namespace
}  // namespace fsdp::tools
