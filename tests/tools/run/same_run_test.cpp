// What keeps a run from going on from a checkpoint, each by itself.
// Requirements: S2.13.
#include "tools/run/same_run.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

models::ModelConfig small_model() {
  models::ModelConfig model = models::family_defaults("llama");
  model.vocabulary = 11;
  model.hidden = model.ffn = 8;
  model.layers = model.heads = model.kv_heads = 1;
  model.head_dim = 8;
  return model;
}

// The run of two ranks that left the checkpoint, as it goes on.
ContinuedRun unchanged(const models::ModelConfig& model) {
  const config::StepShape shape = {.batch = 8, .micro_steps = 2, .ranks = 2};
  return {.model = model,
          .shape = shape,
          .before = shape,
          .model_before = models::config_json(model, "")};
}

std::string error_of(const ContinuedRun& run) {
  return test::error_of([&] { check_same_run(run); });
}

TEST_CASE("same run: nothing has changed; another number of ranks alone does not matter") {
  const models::ModelConfig model = small_model();
  ContinuedRun run = unchanged(model);
  CHECK(error_of(run) == "");
  run.shape.ranks = 3;
  CHECK(error_of(run) == "");
}

TEST_CASE("same run: another batch, another model, an order that follows the ranks") {
  const models::ModelConfig model = small_model();
  ContinuedRun batch = unchanged(model);
  batch.shape.batch = 12;
  CHECK(test::contains(error_of(batch), "--set train.batch=8 --set train.micro_steps=auto keeps"));

  models::ModelConfig other = model;
  other.ffn = 9;
  ContinuedRun wider = unchanged(model);
  wider.model_before = models::config_json(other, "");
  CHECK(error_of(wider) ==
        "--resume: the model is another one than the checkpoint's; --resume-with-changes goes on "
        "all the same");

  ContinuedRun order = unchanged(model);
  order.order_follows_ranks = true;
  CHECK(error_of(order) == "");
  order.before.ranks = 1;
  CHECK(test::contains(error_of(order), "expected 1 rank as before, got 2;"));
}

TEST_CASE("same run: dropout is keyed by micro-steps, unless rows_per_pass fixes what one holds") {
  models::ModelConfig model = small_model();
  ContinuedRun run = unchanged(model);
  run.shape.micro_steps = 4;
  CHECK(!drops_other_elements(run));  // nothing drops
  for (double models::ModelConfig::*dropout :
       {&models::ModelConfig::embedding_dropout, &models::ModelConfig::attention_dropout,
        &models::ModelConfig::residual_dropout, &models::ModelConfig::mlp_dropout}) {
    model.*dropout = 0.1;
    CHECK(drops_other_elements(run));
    model.*dropout = 0;
  }
  run.adapter_dropout = 0.1;
  CHECK(test::contains(error_of(run), "expected 2 ranks and train.micro_steps as before"));
  run.shape.micro_steps = 2;
  CHECK(!drops_other_elements(run));
  run.shape.ranks = 4;
  CHECK(drops_other_elements(run));
  run.shape.micro_steps = run.before.micro_steps = 1;  // a sequence has one place
  CHECK(!drops_other_elements(run));
  run.shape = {.batch = 8, .rows_per_pass = 2, .micro_steps = 4, .ranks = 1};
  run.before = {.batch = 8, .rows_per_pass = 2, .micro_steps = 2, .ranks = 2};
  CHECK(!drops_other_elements(run));
}

}  // namespace
}  // namespace fsdp::tools
