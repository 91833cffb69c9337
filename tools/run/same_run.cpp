// One check after the other.
#include "tools/run/same_run.h"

#include "core/error.h"

namespace fsdp::tools {

bool drops_other_elements(const ContinuedRun& run) {
  const models::ModelConfig& m = run.model;
  const bool drops = m.embedding_dropout > 0 || m.attention_dropout > 0 || m.residual_dropout > 0 ||
                     m.mlp_dropout > 0 || run.adapter_dropout > 0;
  const config::StepShape &now = run.shape, &before = run.before;
  const bool same = now.micro_steps == before.micro_steps && now.ranks == before.ranks &&
                    now.rows_per_pass == before.rows_per_pass;
  const auto by_micro_step = [](const config::StepShape& shape) {
    return shape.rows_per_pass == 0 && shape.micro_steps > 1;
  };
  return drops && !same && (by_micro_step(now) || by_micro_step(before));
}

void check_same_run(const ContinuedRun& run) {
  const int ranks = run.before.ranks;
  // train.batch may be left to the number of ranks, which a run that goes on does not follow.
  FSDP_CHECK(run.shape.batch == run.before.batch,
             "--resume: train.batch: {}; the run had: {}. Where train.batch is not given it grows "
             "with the ranks: --set train.batch={} --set train.micro_steps=auto keeps it; "
             "--resume-with-changes continues anyway",
             run.shape.text(), run.before.text(), run.before.batch);
  FSDP_CHECK(models::config_json(run.model, "") == run.model_before,
             "--resume: the model is another one than the checkpoint's; "
             "--resume-with-changes continues anyway");
  FSDP_CHECK(!run.order_follows_ranks || run.shape.ranks == ranks,
             "--resume: with data.shuffle_rule: torch the number of ranks decides which sequences "
             "an epoch has: expected {} rank{} as before, got {}; --resume-with-changes goes on "
             "all the same",
             ranks, ranks == 1 ? "" : "s", run.shape.ranks);
  FSDP_CHECK(!drops_other_elements(run),
             "--resume: dropout depends on the micro-step in which a sequence is computed, and "
             "other ranks or train.micro_steps move sequences to others; expected {} ranks and "
             "train.micro_steps as before (with train.rows_per_pass, any); "
             "--resume-with-changes continues anyway",
             ranks);
}

}  // namespace fsdp::tools
