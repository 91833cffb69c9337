// Parts of a run that need no session: the files of its directory when it begins, goes on, or could
// not begin; the disk that it offloads to; whether it is the run that its checkpoint belongs to;
// the texts of its end. Read next: training_run.h. Not here: making and locking the directory
// (tools/report/run_directory.h), keys that changed (tools/checkpoint/resume.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "comm/fsdp/options.h"
#include "models/config.h"
#include "tools/config/config.h"
#include "tools/config/step_shape.h"
#include "tools/data/text_source.h"
#include "tools/report/metrics_line.h"
#include "tools/report/train_totals.h"
#include "tools/train/prefetch.h"

namespace fsdp::tools {

// A new directory in which nothing happened: a run that could not begin leaves no folder that looks
// like one.
void forget_directory(const std::filesystem::path& directory);
// What came after the checkpoint is done again, and a run that goes on is not at its end.
// `run_before`: the directory of the run that left the checkpoint, whose lines up to there
// `directory` gets (metrics_until in tools/report/metrics_line.h). Returns what the user should
// know.
std::vector<std::string> go_on_in_directory(const std::filesystem::path& directory,
                                            const std::filesystem::path& run_before,
                                            const TrainTotals& before, const LoggedSteps& logged);
// Error where saving replaces the folder of `key`, which the run reads. `replaced`: what it saves.
void check_source_stays(const std::string& key, const std::string& source,
                        const std::filesystem::path& replaced);
// skipped_rows.jsonl; none where none were skipped, also of an earlier part of the run.
void write_skipped_rows(const std::filesystem::path& directory,
                        const std::vector<data::SkippedRow>& rows);

// Whether the text has a batch for certain: no tokenizer makes tokens of so many bytes.
bool fills_a_batch(const config::TrainConfig& config, int64_t batch);
// Error where `folder` (fsdp.offload_folder) is none, or has no space for `ranks` times so many
// bytes; 0: nothing is needed.
void check_disk(const std::string& folder, size_t bytes_of_rank, int ranks);

struct ContinuedRun {
  const models::ModelConfig& model;
  double adapter_dropout = 0;
  bool order_follows_ranks = false;  // data.shuffle_rule: torch
  config::StepShape shape, before;   // now, and of the run that left the checkpoint
  std::string model_before;          // config.json
};

// Whether dropout, which is keyed by micro-steps, would drop other elements than before.
bool drops_other_elements(const ContinuedRun& run);
// Error that says what differs and that --resume-with-changes continues anyway.
void check_same_run(const ContinuedRun& run);

// `averaged_steps`: train.log_every. `bigram`: the entropy, where the text has one.
std::string format_losses(const TrainTotals& totals, int64_t averaged_steps,
                          std::optional<double> bigram);
// Why a run that has done its steps has not ended well; "": it has.
std::string failed_validation(const config::TrainConfig& config, const TrainTotals& totals);
// Of this rank's batches but the first one, which no step can hide; "" where there was one step.
std::string format_batch_times(const Prefetch::Times& times, int64_t steps);
// ZeRO's formula for the states of a rank: 2 bytes a parameter, 2 a gradient and 12 of AdamW; f32
// throughout comes to 16, too.
size_t states_by_formula(comm::Strategy strategy, int shards, int64_t parameters);
// Of a hybrid strategy whose groups of `shards` ranks do not all lie inside of a host; "" of
// others. `hosts`: by rank.
std::string spread_groups(const std::vector<std::string>& hosts, int shards);

}  // namespace fsdp::tools
