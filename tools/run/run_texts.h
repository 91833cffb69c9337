// What a run says at its end, as text and numbers of its totals. Read next:
// training_run_report.cpp, which says it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/fsdp/options.h"
#include "tools/config/config.h"
#include "tools/report/train_totals.h"
#include "tools/train/prefetch.h"

namespace fsdp::tools {

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
