// The search against all candidates one by one, and its order.
#include "tools/plan/plan_search.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/plan_questions.h"
#include "tools/predict/memory_view.h"

namespace fsdp::tools {
namespace {

using test::plan_question;
using test::rates_for;

// Every combination that the manual names, on one node of two GPUs, that takes at most so much.
std::vector<PlannedJob> all_jobs(const PlanQuestion& question, size_t most) {
  std::vector<PlannedJob> out;
  for (const std::string strategy :
       {"full_shard", "shard_grad_op", "shard_optimizer", "no_shard"}) {
    for (const std::string recompute : {"none", "selective", "full"}) {
      for (const std::string offload : {"none", "optimizer", "all"}) {
        for (const int rows : {1, 2, 4, 8}) {
          try {
            out.push_back(
                plan_job(question,
                         {1,
                          {"fsdp.strategy=" + strategy, "train.recompute.mode=" + recompute,
                           "fsdp.offload=" + offload, fmt::format("train.rows_per_pass={}", rows)}},
                         rates_for(question), most));
          } catch (const TooMuchMemory&) {
          }
        }
      }
    }
  }
  return out;
}

double best_price(const std::vector<PlannedJob>& jobs) {
  double best = std::numeric_limits<double>::infinity();
  for (const PlannedJob& job : jobs) best = std::min(best, price_of(job, Best::kCheapest));
  return best;
}

TEST_CASE("plan search: what is left out without a run is never the best") {
  PlanQuestion question = plan_question(
      {"model.hidden_size=256", "data.sequence_length=32", "train.optimizer.kind=sgd"});
  std::vector<size_t> peaks;
  for (const PlannedJob& job : all_jobs(question, 0)) peaks.push_back(job.peak_bytes);
  std::sort(peaks.begin(), peaks.end());
  const auto left = static_cast<double>(gpu_memory("A100-80", 2).left());
  int64_t too_large = 0, more_rows = 0;
  for (const size_t share : {5, 40, 80}) {
    const size_t most = peaks[peaks.size() * share / 100];
    question.safety = 1 - static_cast<double>(most) / left;
    CAPTURE(most);
    const SearchResult found = search_plans(question, {});
    REQUIRE(!found.best.empty());
    // In the same bin of a thousandth prices are the same.
    CHECK(price_of(found.best.front(), Best::kCheapest) <=
          best_price(all_jobs(question, memory_limit_of(question, 2))) * 1.001);
    int64_t decided = found.runs;
    for (const auto& [why, count] : found.left_out) {
      if (why == "do not fit") {
        too_large += count;
      } else {
        decided += count;
      }
      more_rows += why.starts_with("more rows") ? count : 0;
    }
    CHECK(decided == found.candidates);
  }
  CHECK(too_large > 0);
  CHECK(more_rows > 0);
}

TEST_CASE("plan search: a single pass that needs less than several is found") {
  PlanQuestion question =
      plan_question({"model.hidden_size=256", "data.sequence_length=32", "fsdp.strategy=no_shard"});
  const auto peak = [&](int passes) {
    const std::string micro_steps = fmt::format("train.micro_steps={}", passes);
    return plan_job(question, {1, {micro_steps}}, rates_for(question)).peak_bytes;
  };
  const size_t one = peak(1), several = std::min({peak(2), peak(4), peak(8)});
  REQUIRE(one < several);
  question.safety = 1 - static_cast<double>(one + several) / 2 /
                            static_cast<double>(gpu_memory("A100-80", 2).left());
  const SearchResult found =
      search_plans(question, {.fixed = {"fsdp.strategy", "train.recompute.mode", "fsdp.offload"}});
  REQUIRE(found.best.size() == 1);
  CHECK(found.best.front().shape == "8 x 1");
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
  SearchOptions on_one = options;
  on_one.threads = 1;
  const SearchResult again = search_plans(question, on_one);
  REQUIRE(again.best.size() == found.best.size());
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
  const SearchResult quick = search_plans(question, fastest);
  CHECK(quick.best.front().settings.nodes > found.best.front().settings.nodes);
  for (const PlannedJob& job : found.best) {
    CHECK(price_of(quick.best.front(), Best::kFastest) <= price_of(job, Best::kFastest) * 1.001);
  }
}

TEST_CASE("plan search: micro-steps of a file give way to the rows of a candidate") {
  const PlanQuestion question = plan_question({"train.micro_steps=4"});
  const SearchResult found = search_plans(question, {.top = 500});
  std::set<std::string> shapes;
  for (const PlannedJob& job : found.best) shapes.insert(job.shape);
  CHECK(shapes == std::set<std::string>{"1 x 8", "2 x 4", "4 x 2", "8 x 1"});
  // But not where the command line says them.
  for (const PlannedJob& job :
       search_plans(question, {.fixed = {"train.micro_steps"}, .top = 500}).best) {
    CHECK(job.shape == "2 x 4");
  }
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
namespace {

TEST_CASE("each index: each once") {
  for (const size_t threads : {0, 1, 7}) {
    std::vector<std::atomic<int>> calls(100);
    for_each_index(
        calls.size(), [&](size_t i) { ++calls[i]; }, threads);
    for (const std::atomic<int>& each : calls) CHECK(each == 1);
  }
  for_each_index(0, [](size_t) { FAIL("there is none"); });
}

TEST_CASE("each index: what is thrown arrives, and no new ones begin") {
  std::atomic<int> calls = 0;
  CHECK_THROWS_WITH_AS(for_each_index(
                           1000000,
                           [&](size_t) {
                             ++calls;
                             throw std::runtime_error("no");
                           },
                           3),
                       "no", std::runtime_error);
  CHECK(calls <= 3);
}

}  // namespace
}  // namespace fsdp::tools
