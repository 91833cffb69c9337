// The files of a run: of its directory when it begins, goes on, or could not begin; the texts that
// it reads; the disk that it offloads to. Not here: making and locking the directory
// (tools/report/run_directory.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/config/config.h"
#include "tools/data/text_source.h"
#include "tools/report/metrics_line.h"
#include "tools/report/train_totals.h"

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

}  // namespace fsdp::tools
