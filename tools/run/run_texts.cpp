// Words and units of the lines at the end of a run.
#include "tools/run/run_texts.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "tools/report/metrics.h"

namespace fsdp::tools {

std::string format_losses(const TrainTotals& totals, int64_t averaged_steps,
                          std::optional<double> bigram) {
  const int64_t steps = std::min(averaged_steps, totals.steps);
  const std::string of =
      steps == 1 ? "of the last step" : fmt::format("mean of the last {} steps", steps);
  std::string out = fmt::format("loss (nats per token)\n  {:<26}{:>8.4f}   {}\n", "training",
                                totals.train_loss(), of);
  if (totals.validation_loss) {
    out += fmt::format("  {:<26}{:>8.4f}\n", "validation", *totals.validation_loss);
  }
  if (bigram) {
    out += fmt::format("  {:<26}{:>8.4f}   validation text by the training text's token pairs\n",
                       "bigram entropy", *bigram);
  }
  return out;
}

std::string failed_validation(const config::TrainConfig& config, const TrainTotals& totals) {
  const std::string nonfinite = nonfinite_validation(totals);
  if (nonfinite.empty() || config.train.allow_nonfinite_validation) return "";
  return nonfinite + " (train.allow_nonfinite_validation)";
}

std::string format_batch_times(const Prefetch::Times& times, int64_t steps) {
  if (steps < 2) return "";
  const double hidden = std::max(1 - times.waited_s / std::max(times.made_s, 1e-12), 0.0);
  return fmt::format("making batches: {:.3f} ms a step, {:.1f} % of it hidden behind the steps\n",
                     1e3 * times.made_s / static_cast<double>(steps - 1), 100 * hidden);
}

size_t states_by_formula(comm::Strategy strategy, int shards, int64_t parameters) {
  const auto whole = static_cast<double>(parameters);
  const double share = whole / shards;
  switch (strategy) {
    case comm::Strategy::kNoShard:
      return static_cast<size_t>(16 * whole);
    case comm::Strategy::kShardOptimizer:
      return static_cast<size_t>(4 * whole + 12 * share);
    case comm::Strategy::kShardGradOp:
    case comm::Strategy::kHybridShardZero2:
      return static_cast<size_t>(2 * whole + 14 * share);
    default:
      return static_cast<size_t>(16 * share);
  }
}

std::string spread_groups(const std::vector<std::string>& hosts, int shards) {
  const auto size = static_cast<size_t>(shards), ranks = hosts.size();
  if (size >= ranks) return "";
  std::vector<size_t> spread;  // their first ranks
  std::vector<std::string> names, counts;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const size_t first = rank - rank % size;
    const bool listed = !spread.empty() && spread.back() == first;
    if (hosts[rank] != hosts[first] && !listed) spread.push_back(first);
    if (std::find(names.begin(), names.end(), hosts[rank]) == names.end()) {
      names.push_back(hosts[rank]);
      counts.push_back(fmt::format("{} on {}", std::count(hosts.begin(), hosts.end(), hosts[rank]),
                                   hosts[rank]));
    }
  }
  if (spread.empty()) return "";
  constexpr size_t kMostHosts = 8;
  if (counts.size() > kMostHosts) {
    counts.resize(kMostHosts);
    counts.push_back("...");
  }
  return fmt::format(
      "fsdp.shard_size {}: {} of {} shard groups are on several hosts, the first has ranks {} to "
      "{}: "
      "what it gathers crosses the network; ranks: {}",
      size, spread.size(), ranks / size, spread[0], spread[0] + size - 1, fmt::join(counts, ", "));
}

}  // namespace fsdp::tools
