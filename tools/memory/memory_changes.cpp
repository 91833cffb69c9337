// Which changes there are, and the search among them.
#include "tools/memory/memory_changes.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/config/step_shape.h"
#include "tools/train/config_to_session.h"

namespace fsdp::tools {
namespace {

using config::TrainConfig;

constexpr int kMostRanks = 512;

std::string key_of(const std::string& override) { return override.substr(0, override.find('=')); }

// Two changes of one key are none together.
bool go_together(const MemoryChange& a, const MemoryChange& b) {
  return std::none_of(a.overrides.begin(), a.overrides.end(), [&](const std::string& mine) {
    return std::any_of(b.overrides.begin(), b.overrides.end(),
                       [&](const std::string& other) { return key_of(mine) == key_of(other); });
  });
}

MemoryChange both(const MemoryChange& a, const MemoryChange& b) {
  MemoryChange out = a;
  out.overrides.insert(out.overrides.end(), b.overrides.begin(), b.overrides.end());
  out.keeps = std::max(a.keeps, b.keeps);
  return out;
}

// Collects those that are not as it is already.
class Changes {
 public:
  void add(bool is_so, std::vector<std::string> overrides, Keeps keeps = Keeps::kBits) {
    if (!is_so) all.push_back({.overrides = std::move(overrides), .keeps = keeps});
  }
  std::vector<MemoryChange> all;
};

void add_recompute(const TrainConfig& c, Changes& changes) {
  const config::RecomputeSection& now = c.train.recompute;
  const auto add = [&](RecomputeMode mode, const char* name, int64_t every) {
    std::vector<std::string> overrides = {fmt::format("train.recompute.mode={}", name)};
    if (now.every != every) overrides.push_back(fmt::format("train.recompute.every={}", every));
    changes.add(now.mode == mode && now.every == every, std::move(overrides));
  };
  add(RecomputeMode::kSelective, "selective", 1);
  add(RecomputeMode::kFull, "full", 2);
  add(RecomputeMode::kFull, "full", 1);
  add(RecomputeMode::kOffload, "offload", 1);
  add(RecomputeMode::kNone, "none", 1);
}

void add_strategies(const TrainConfig& c, int ranks, Changes& changes) {
  if (ranks == 1 || comm::is_hybrid(c.fsdp.options.strategy)) return;
  const Keeps keeps = c.fsdp.options.fixed_order ? Keeps::kBits : Keeps::kRounding;
  using enum comm::Strategy;
  for (const comm::Strategy strategy : {kShardOptimizer, kShardGradOp, kFullShard, kNoShard}) {
    changes.add(c.fsdp.options.strategy == strategy,
                {fmt::format("fsdp.strategy={}", choice_name(strategy))}, keeps);
  }
}

// Rows of a rank that pass through the model at a time.
void add_passes(const TrainConfig& c, int ranks, Changes& changes) {
  const config::StepShape shape = config::step_shape(c, ranks);
  for (int64_t rows = shape.rows_per_pass / 2; rows > 0; rows /= 2) {
    changes.add(false, {fmt::format("train.rows_per_pass={}", rows), "train.micro_steps=auto"},
                Keeps::kRounding);
  }
  if (shape.rows_per_pass > 0) return;
  const int64_t rows = (shape.batch + ranks - 1) / ranks;
  for (int64_t steps = 2 * shape.micro_steps; steps <= rows; steps *= 2) {
    changes.add(false, {fmt::format("train.micro_steps={}", steps)}, Keeps::kRounding);
  }
}

// Of two that do not fit alone, with the time that both would add, the cheapest first. Their bytes
// are not known.
std::vector<Alternative> pairs_of(
    const std::vector<Alternative>& single, const Alternative& now, size_t limit,
    const std::function<bool(const Alternative&, const Alternative&)>& cheaper) {
  std::vector<Alternative> out;
  for (size_t i = 0; i < single.size(); ++i) {
    for (size_t j = i + 1; j < single.size(); ++j) {
      const Alternative &a = single[i], &b = single[j];
      if (a.bytes <= limit || b.bytes <= limit || !go_together(a.change, b.change)) continue;
      out.push_back({both(a.change, b.change), 0, a.ms + b.ms - now.ms});
    }
  }
  std::stable_sort(out.begin(), out.end(), cheaper);
  return out;
}

}  // namespace

std::string_view describe(Keeps keeps) {
  switch (keeps) {
    case Keeps::kBits:
      return "the same bits";
    case Keeps::kRounding:
      return "the same up to rounding";
    case Keeps::kDType:
      return "another dtype, other results";
    case Keeps::kBatch:
      return "a larger batch, other results";
  }
  return "";
}

std::string MemoryChange::text() const {
  const std::string all = fmt::format("{}", fmt::join(overrides, " "));
  return ranks == 0 ? all
                    : fmt::format("{} rank{}{}{}", ranks, ranks == 1 ? "" : "s",
                                  all.empty() ? "" : " ", all);
}

std::string MemoryChange::flags() const {
  return fmt::format("--set {}", fmt::join(overrides, " --set "));
}

RunPlan::RunPlan(TrainConfig config, int64_t vocabulary, PredictedData data, int ranks,
                 BackendOptions backend, std::shared_ptr<CallRates> rates)
    : config_(std::move(config)),
      vocabulary_(vocabulary),
      data_(std::move(data)),
      ranks_(ranks),
      backend_(std::move(backend)),
      rates_(std::move(rates)) {}

RunPlan::Changed RunPlan::changed(const MemoryChange& change) const {
  Changed out = {.config = config_, .data = data_, .ranks = ranks_};
  if (!change.overrides.empty()) {
    const std::vector<config::Override> overrides(change.overrides.begin(), change.overrides.end());
    out.config = config::parse_config(config::to_yaml(config_), "", overrides);
  }
  if (change.ranks > 0) {
    out.ranks = change.ranks;
    const config::StepShape shape = config::step_shape(out.config, change.ranks);
    data::BatchShape& batch = out.data.batches.front();
    batch.rows = std::max(batch.rows, shape.batch);
  }
  out.data.rows_per_pass = out.config.train.rows_per_pass;
  out.session =
      session_options(out.config, model_config(out.config, vocabulary_), out.ranks, backend_);
  return out;
}

PlannedRun RunPlan::run(const MemoryChange& change, size_t stop_above) const {
  const Changed c = changed(change);
  PlannedRun out = {.run =
                        predicted_run(c.config, c.session, c.data, c.ranks, 0, rates_, stop_above)};
  out.bytes = out.run->needed();
  // The last rank has a row less, and other gaps between its blocks.
  const auto uneven = [&](const data::BatchShape& batch) { return batch.rows % c.ranks != 0; };
  if (std::any_of(c.data.batches.begin(), c.data.batches.end(), uneven) ||
      std::any_of(c.data.validation_batches.begin(), c.data.validation_batches.end(), uneven)) {
    const auto last =
        predicted_run(c.config, c.session, c.data, c.ranks, c.ranks - 1, nullptr, stop_above);
    out.bytes = std::max(out.bytes, last->needed());
  }
  return out;
}

std::optional<Alternative> RunPlan::look_at(const MemoryChange& change, size_t stop_above) const {
  try {
    const PlannedRun planned = run(change, stop_above);
    return Alternative{change, planned.bytes, planned.run->step_ms()};
  } catch (const Error&) {  // which train would say, or too large
    return std::nullopt;
  }
}

std::vector<MemoryChange> RunPlan::single_changes() const {
  const TrainConfig& c = config_;
  Changes changes;
  changes.add(!c.checkpoint.async, {"checkpoint.async=false"});
  changes.add(c.fsdp.options.release_arena, {"fsdp.release_arena=true"});
  changes.add(c.fsdp.units_in_flight == 1, {"fsdp.units_in_flight=1"});
  changes.add(c.fsdp.units_in_flight == 3, {"fsdp.units_in_flight=3"});
  add_recompute(c, changes);
  // The CPU's optimizer rounds otherwise than a GPU's.
  const Keeps offloaded = backend_.cuda ? Keeps::kRounding : Keeps::kBits;
  for (const comm::Offload offload :
       {comm::Offload::kNone, comm::Offload::kOptimizer, comm::Offload::kAll}) {
    changes.add(c.fsdp.options.offload == offload,
                {fmt::format("fsdp.offload={}", choice_name(offload))}, offloaded);
  }
  std::vector<std::string> to_disk = {"fsdp.offload=nvme"};
  if (c.fsdp.offload_folder.empty()) to_disk.push_back("fsdp.offload_folder=.");
  changes.add(c.fsdp.options.offload == comm::Offload::kNvme, std::move(to_disk), offloaded);
  add_strategies(c, ranks_, changes);
  if (c.fsdp.options.units.empty() && ranks_ > 1) {  // units are the sums of a norm, too
    changes.add(c.fsdp.wrap == config::Wrap::kTransformerBlock, {"fsdp.wrap=transformer_block"},
                Keeps::kRounding);
    changes.add(c.fsdp.wrap == config::Wrap::kNone, {"fsdp.wrap=none"}, Keeps::kRounding);
  }
  add_passes(c, ranks_, changes);
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    changes.add(c.train.dtype == dtype, {fmt::format("train.dtype={}", fsdp::name_of(dtype))},
                Keeps::kDType);
  }
  changes.add(c.train.master_dtype == DType::kBF16,
              {"train.master_dtype=bf16", "train.stochastic_rounding=true"}, Keeps::kDType);
  changes.add(c.train.optimizer.state_dtype == DType::kBF16, {"train.optimizer.state_dtype=bf16"},
              Keeps::kDType);
  return std::move(changes.all);
}

std::vector<Alternative> RunPlan::alternatives() const {
  std::vector<MemoryChange> changes = single_changes();
  for (int ranks = 1; ranks <= kMostRanks; ranks *= 2) {
    if (ranks == ranks_) continue;
    MemoryChange change = {.keeps = Keeps::kRounding, .ranks = ranks};
    const bool in_passes = config_.train.rows_per_pass > 0;                // too few are refused
    if (!in_passes && config::step_shape(config_, ranks).batch < ranks) {  // at least a row each
      change.overrides.push_back(fmt::format("train.batch={}", ranks));
      change.keeps = Keeps::kBatch;
    }
    changes.push_back(std::move(change));
  }
  std::vector<Alternative> out;
  for (const MemoryChange& change : changes) {
    if (auto found = look_at(change)) out.push_back(std::move(*found));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  return out;
}

// Those of single_changes() that make it smaller, those first that keep the most.
std::vector<Alternative> RunPlan::smaller_than(size_t bytes) const {
  std::vector<Alternative> out;
  for (const MemoryChange& change : single_changes()) {
    std::optional<Alternative> found = look_at(change);
    if (found && found->bytes < bytes) out.push_back(std::move(*found));
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return std::pair(a.change.keeps, a.bytes) < std::pair(b.change.keeps, b.bytes);
  });
  return out;
}

// One more at a time, until it fits or there is no other.
std::vector<Alternative> RunPlan::one_on_the_other(const std::vector<Alternative>& single,
                                                   const Alternative& now, size_t limit) const {
  std::vector<Alternative> out = {now};
  for (const Alternative& each : single) {
    const Alternative& all = out.back();
    if (all.bytes <= limit) break;
    if (!go_together(all.change, each.change)) continue;
    auto found = look_at(both(all.change, each.change));
    if (found && found->bytes < all.bytes) out.push_back(std::move(*found));
  }
  out.erase(out.begin());
  return out;
}

FittingChanges RunPlan::changes_that_fit(size_t limit, size_t count, Cheapest cheapest) const {
  const PlannedRun as_it_is = run();
  const Alternative now = {{}, as_it_is.bytes, as_it_is.run->step_ms()};
  const std::vector<Alternative> single = smaller_than(now.bytes);
  FittingChanges out = {.fitting = {}, .least = now};
  const auto cost = [&](const Alternative& each) {
    const bool rounds = each.change.keeps == Keeps::kRounding && cheapest == Cheapest::kFastest;
    return std::pair(rounds ? Keeps::kBits : each.change.keeps, each.ms);
  };
  const auto cheaper = [&](const Alternative& a, const Alternative& b) {
    return cost(a) < cost(b);
  };
  const auto take = [&](const Alternative& found) {
    if (found.bytes < out.least.bytes) out.least = found;
    if (found.bytes > limit) return;
    const auto same = [&](const Alternative& other) {
      return other.change.overrides == found.change.overrides;
    };
    if (std::any_of(out.fitting.begin(), out.fitting.end(), same)) return;
    const auto place = std::upper_bound(out.fitting.begin(), out.fitting.end(), found, cheaper);
    out.fitting.insert(place, found);
  };
  std::for_each(single.begin(), single.end(), take);
  const std::vector<Alternative> piled = one_on_the_other(single, now, limit);
  std::for_each(piled.begin(), piled.end(), take);
  if (out.fitting.empty()) return out;
  for (const Alternative& pair : pairs_of(single, now, limit, cheaper)) {
    if (out.fitting.size() >= count && !cheaper(pair, out.fitting[count - 1])) break;
    if (const auto found = look_at(pair.change, limit)) take(*found);
  }
  if (out.fitting.size() > count) out.fitting.resize(count);
  return out;
}

}  // namespace fsdp::tools
