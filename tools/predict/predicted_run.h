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
  data::BatchShape usual;  // the largest whole one, whose time is predicted
  // Of the steps, one after the other; the last one of all that follow. At least one.
  std::vector<data::BatchShape> batches;
  std::vector<data::BatchShape>
      validation_batches;     // the same of an evaluation; none: there is none
  int64_t evaluated = 0;      // batches of an evaluation
  int64_t first_step = 0;     // that the run goes on from
  int64_t rows_per_pass = 0;  // see Batch
  SyntheticRows kind;         // of rows of batches
  int64_t prompt_tokens = 1;  // of the sample; 0: there is none
};
// Of batches whose shapes are known by their number: those of the first ones, as many as it takes
// no time to look at, and the largest of all `count`.
std::vector<data::BatchShape> shapes_of(int64_t count, int64_t rows,
                                        const std::function<data::BatchShape(int64_t)>& shape_of,
                                        const std::vector<data::BatchShape>& largest);
// `pairs`: of tokens that see each other in a sequence, on average, where the data says it.
SyntheticRows kind_of_rows(const config::DataSection& c,
                           std::optional<double> pairs = std::nullopt);
std::string remark_on_documents(const SyntheticRows& kind);  // "": a row is one
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
