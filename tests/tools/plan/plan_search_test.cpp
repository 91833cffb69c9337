// The search against all candidates one by one, and its order.
#include "tools/plan/plan_search.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "tests/support/plan_questions.h"

namespace fsdp::tools {
namespace {

using test::plan_question;
using test::rates_for;

// Every combination that the manual names, on one number of nodes.
double best_of_all(const PlanQuestion& question, int nodes) {
  const int gpus = nodes * question.rates.ranks_per_node;
  double best = 1e300;
  for (const std::string strategy :
       {"full_shard", "shard_grad_op", "shard_optimizer", "no_shard"}) {
    for (const std::string recompute : {"none", "selective", "full"}) {
      for (const std::string offload : {"none", "optimizer", "all"}) {
        for (const int rows : {1, 2, 4, 8}) {
          if (rows * gpus > 16) continue;
          try {
            const PlannedJob job =
                plan_job(question,
                         {nodes,
                          {"fsdp.strategy=" + strategy, "train.recompute.mode=" + recompute,
                           "fsdp.offload=" + offload, fmt::format("train.rows_per_pass={}", rows)}},
                         rates_for(question), memory_limit_of(question, gpus));
            best = std::min(best, price_of(job, Best::kCheapest));
          } catch (const TooMuchMemory&) {
          }
        }
      }
    }
  }
  return best;
}

TEST_CASE("plan search: what is left out without a run is never the best") {
  // A model of 0.2 MiB beside gigabytes: almost all of the device stays free.
  for (const double safety : {0.05, 0.99997}) {
    PlanQuestion question = plan_question({});
    question.safety = safety;
    CAPTURE(memory_limit_of(question, 2));
    const SearchResult found = search_plans(question, {.nodes = {1}});
    const double best = best_of_all(question, 1);
    if (best == 1e300) {
      CHECK(found.best.empty());
      continue;
    }
    REQUIRE(!found.best.empty());
    // Within a thousandth prices are the same.
    CHECK(price_of(found.best.front(), Best::kCheapest) <= best * 1.0011);
    int64_t decided = found.runs;
    for (const auto& [why, count] : found.left_out) {
      if (why != "do not fit" && !why.starts_with("refused")) decided += count;
    }
    CHECK(decided == found.candidates);
  }
}

TEST_CASE("plan search: the best first, the same on any number of threads, the best of each") {
  const PlanQuestion question = plan_question({});
  const SearchOptions options = {.nodes = {1, 2, 4}, .top = 500};
  const SearchResult found = search_plans(question, options);
  REQUIRE(found.best.size() > 20);
  for (size_t i = 1; i < found.best.size(); ++i) {
    CHECK(price_of(found.best[i - 1], Best::kCheapest) <=
          price_of(found.best[i], Best::kCheapest) * 1.0011);
  }
  const SearchResult again = search_plans(question, options);
  for (size_t i = 0; i < found.best.size(); ++i) {
    CHECK(found.best[i].settings.overrides == again.best[i].settings.overrides);
    CHECK(found.best[i].step_s == again.best[i].step_s);
  }
  REQUIRE(found.of_nodes.size() == 3);
  const auto first_of = [&](int nodes) {
    return std::find_if(found.best.begin(), found.best.end(),
                        [&](const PlannedJob& job) { return job.settings.nodes == nodes; });
  };
  for (const PlannedJob& job : found.of_nodes) {
    CHECK(first_of(job.settings.nodes)->settings.overrides == job.settings.overrides);
  }
  SearchOptions fastest = options;
  fastest.best = Best::kFastest;
  CHECK(search_plans(question, fastest).best.front().settings.nodes >=
        found.best.front().settings.nodes);
}

TEST_CASE("plan search: what the command line says stays") {
  const PlanQuestion question =
      plan_question({"fsdp.strategy=shard_optimizer", "train.recompute.mode=full"});
  const SearchResult found = search_plans(
      question, {.nodes = {2}, .fixed = {"fsdp.strategy", "train.recompute.mode"}, .top = 500});
  REQUIRE(!found.best.empty());
  for (const PlannedJob& job : found.best) {
    CHECK(job.config.fsdp.options.strategy == comm::Strategy::kShardOptimizer);
    CHECK(job.config.train.recompute.mode == RecomputeMode::kFull);
  }
}

TEST_CASE("plan search: progress comes to its end") {
  int64_t last = 0, all = 0, calls = 0;
  search_plans(plan_question({}), {}, [&](int64_t done, int64_t of) {
    CHECK(done == last + 1);
    last = done;
    all = of;
    ++calls;
  });
  CHECK(last == all);
  CHECK(calls > 10);
}

}  // namespace
}  // namespace fsdp::tools
