// A small job on two GPUs a node, for tests of plans.
#pragma once

#include "tools/plan/planned_job.h"
#include "tools/predict/machines.h"

namespace fsdp::test {

inline tools::PlanQuestion plan_question(const std::vector<config::Override>& overrides) {
  std::vector<config::Override> all = {
      "model.model_type=llama", "model.hidden_size=64",     "model.layers=3",
      "model.heads=4",          "model.vocab_size=257",     "train.batch=16",
      "train.dtype=bf16",       "data.sequence_length=128",
  };
  all.insert(all.end(), overrides.begin(), overrides.end());
  tools::PlanQuestion question = {.config = config::read_config("", all), .gpu = "A100-80"};
  question.rates = tools::machine_rates("A100-80");
  question.rates.ranks_per_node = 2;
  return question;
}

inline std::shared_ptr<tools::CallRates> rates_for(const tools::PlanQuestion& question) {
  return std::make_shared<tools::CallRates>(question.rates);
}

}  // namespace fsdp::test
