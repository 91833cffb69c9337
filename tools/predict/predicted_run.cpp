// The phases of fsdp train, in its order.
#include "tools/predict/predicted_run.h"

#include <algorithm>

#include "tools/checkpoint/staged_state.h"
#include "tools/config/step_shape.h"
#include "tools/generate/generation.h"
#include "tools/model_folders/checkpoint_model.h"
#include "tools/model_folders/load_model.h"
#include "tools/train/config_to_session.h"

namespace fsdp::tools {
namespace {

// Reading a file takes nothing of the device's.
models::FillFunction fill_of(const config::TrainConfig& config) {
  const auto scratch = models::from_scratch(0);
  if (config.model.path.empty()) return scratch;
  return [=, of_file = !config.lora.path.empty()](const Parameter& parameter, int64_t first,
                                                  Tensor& values) {
    if (models::is_lora(parameter) && !of_file) scratch(parameter, first, values);
  };
}

}  // namespace

std::string describe_run(const models::ModelConfig& model, comm::Strategy strategy, int ranks) {
  return fmt::format("{}; {} on {} rank{}", describe(model), choice_name(strategy), ranks,
                     ranks == 1 ? "" : "s");
}

PredictedData data_of(const config::TrainConfig& config, int ranks) {
  const config::StepShape shape = config::step_shape(config, ranks);
  const data::BatchShape full = {.rows = shape.batch, .length = config.data.sequence_length};
  PredictedData out = {.batches = {full},
                       .rows_per_pass = shape.rows_per_pass,
                       .hides_padding = config.data.hides_padding()};
  if (!config.data.validation.empty()) out.validation_batches = {full};
  return out;
}

std::unique_ptr<MetaRun> predicted_run(const config::TrainConfig& config,
                                       const PlacedOptions& session, const PredictedData& data,
                                       int ranks, int rank, std::shared_ptr<CallRates> rates,
                                       size_t stop_above) {
  auto run = std::make_unique<MetaRun>(session, ranks, rank, std::move(rates));
  run->stop_above(stop_above);
  if (data.hides_padding) run->hide_padding();
  run->load(fill_of(config), config.fsdp.sync_module_states);
  if (config.checkpoint.async) {
    run->phase("checkpoints", [&](Session& s) { run->keep(std::make_shared<StagingMemory>(s)); });
  }
  constexpr int64_t kSteps = 2, kMost = 10;  // [Note: two steps]
  const data::BatchShape& usual = data.batches.front();
  run->steps(usual.rows, usual.length, std::min(config.train.steps, kSteps),
             std::min(config.train.steps, kMost), data.rows_per_pass);
  for (size_t i = 1; i < data.batches.size(); ++i) {
    run->other_step("last batch of an epoch", data.batches[i].rows, data.batches[i].length,
                    data.rows_per_pass);
  }
  for (const data::BatchShape& batch : data.validation_batches) {
    run->evaluate(batch.rows, batch.length, data.rows_per_pass);
  }
  if (config.train.save) {
    run->phase("saving", [&](Session& s) { walk_saved(s, saved_dtype(config)); });
  }
  if (config.sample.tokens > 0 && data.prompt_tokens > 0) {
    run->phase("sample", [&](Session& s) {
      generate_tokens(s, {.tokens = config.sample.tokens},
                      {std::vector<int32_t>(static_cast<size_t>(data.prompt_tokens), 0)});
    });
  }
  return run;
}

}  // namespace fsdp::tools
