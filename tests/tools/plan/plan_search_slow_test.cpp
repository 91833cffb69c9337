// How long a search takes: Llama-3 8B on 64 GPUs.
#include <chrono>

#include <doctest/doctest.h>

#include "tools/plan/plan_search.h"
#include "tools/predict/machines.h"

namespace fsdp::tools {
namespace {

TEST_CASE("plan search: a thousand candidates in a minute") {
  PlanQuestion question = {
      .config = config::read_config("", {"model.preset=llama3-8b", "train.dtype=bf16",
                                         "data.sequence_length=8192", "train.batch=1024"}),
      .gpu = "H100"};
  question.rates = machine_rates("H100");
  const auto begin = std::chrono::steady_clock::now();
  const SearchResult found = search_plans(question, {.nodes = {4, 8}});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  CHECK(found.candidates >= 1000);
  CHECK(found.best.size() == 10);
  CHECK(took.count() < 60);
}

}  // namespace
}  // namespace fsdp::tools
