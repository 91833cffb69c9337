// What a rank of `fsdp train` would take, phase by phase, without bytes: loading, steps,
// evaluation, saving and the sample, as the configuration says. explain prints it; train prints it
// beside what it took. Not here: how it runs without bytes (tools/predict/meta_run.h).
#pragma once

#include "tools/config/config.h"
#include "tools/data/loader.h"
#include "tools/model_folders/save_model.h"
#include "tools/predict/meta_run.h"

namespace fsdp::tools {

// What only the data and the tokenizer say.
struct PredictedData {
  std::vector<data::BatchShape> batches;             // at least one; see Loader::largest_batches
  std::vector<data::BatchShape> validation_batches;  // none: no evaluation
  int64_t rows_per_pass = 0;                         // see Batch
  bool hides_padding = false;                        // batches have a mask
  int64_t prompt_tokens = 1;                         // of the sample; 0: there is none
};
// Where there is no data yet: full batches of full length.
PredictedData data_of(const config::TrainConfig& config, int ranks);

// "gpt2: ...; full_shard on 2 ranks"
std::string describe_run(const models::ModelConfig& model, comm::Strategy strategy, int ranks);

// `stop_above`: see MetaRun.
std::unique_ptr<MetaRun> predicted_run(const config::TrainConfig& config,
                                       const PlacedOptions& session, const PredictedData& data,
                                       int ranks, int rank = 0,
                                       std::shared_ptr<CallRates> rates = nullptr,
                                       size_t stop_above = 0);

}  // namespace fsdp::tools
