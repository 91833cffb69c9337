// Which changes there are, and the search among them.
#include "tools/predict/memory_changes.h"

#include <algorithm>
#include <functional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/config/options.h"
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

// By what the list of options says: half the rows of a pass, a fourth, ...; twice the micro-steps,
// ..., while each has a row.
void add_passes(const config::Option& option, const config::StepShape& shape,
                std::vector<MemoryChange>& changes) {
  const config::MemoryChoices& about = option.about.memory;
  const auto add = [&](int64_t number) {
    changes.push_back(
        {.overrides = {fmt::format("{}={}", option.key, number)}, .keeps = about.keeps});
    if (!about.with.empty()) changes.back().overrides.push_back(about.with);
  };
  if (about.halves_rows) {
    for (int64_t rows = shape.rows_per_pass / 2; rows > 0; rows /= 2) add(rows);
  }
  if (!about.doubles_steps || shape.rows_per_pass > 0) return;
  const int64_t rows = (shape.batch + shape.ranks - 1) / shape.ranks;
  for (int64_t steps = 2 * shape.micro_steps; steps <= rows; steps *= 2) add(steps);
}

// But for what is so already.
void add_choices(const config::Option& option, bool on_gpu, std::vector<MemoryChange>& changes) {
  const config::MemoryChoices& about = option.about.memory;
  const Keeps keeps = about.rounds_on_gpu && on_gpu ? Keeps::kRounding : about.keeps;
  for (const auto& [value, with] : about.choices) {
    if (option.value.text() == value && with.empty()) continue;
    changes.push_back({.overrides = {fmt::format("{}={}", option.key, value)}, .keeps = keeps});
    if (!with.empty()) changes.back().overrides.push_back(with);
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
      out.push_back({.change = both(a.change, b.change), .ms = a.ms + b.ms - now.ms});
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
    out.data.usual.rows = std::max(out.data.usual.rows, shape.batch);
    for (data::BatchShape& batch : out.data.batches) batch.rows = out.data.usual.rows;
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
  // A later rank may have a row less of some batches, and other gaps between its blocks.
  std::set<int> others;
  for (const auto* batches : {&c.data.batches, &c.data.validation_batches}) {
    for (const data::BatchShape& batch : *batches) {
      const auto shorter = static_cast<int>(batch.rows % c.ranks);  // the first such rank
      if (shorter > 0) others.insert(c.data.rows_per_pass > 0 ? c.ranks - 1 : shorter);
    }
  }
  for (const int rank : others) {
    const auto other =
        predicted_run(c.config, c.session, c.data, c.ranks, rank, nullptr, stop_above);
    out.bytes = std::max(out.bytes, other->needed());
  }
  return out;
}

std::optional<Alternative> RunPlan::look_at(const MemoryChange& change, size_t stop_above) const {
  const auto known = looked_at_.find(change.text());
  if (known != looked_at_.end()) return known->second;
  std::optional<Alternative> out;
  try {
    const PlannedRun planned = run(change, stop_above);
    out = Alternative{change, planned.bytes, planned.run->step_ms(), planned.run->host_needed(),
                      planned.run->file_needed()};
  } catch (const Error&) {  // which train would say, or too large
  }
  if (stop_above == 0) looked_at_[change.text()] = out;
  return out;
}

std::vector<MemoryChange> RunPlan::single_changes() const {
  TrainConfig config = config_;  // options refer to members
  std::vector<config::Option> options = config::options(config);
  std::stable_sort(options.begin(), options.end(), [](const auto& a, const auto& b) {
    return a.about.memory.turn < b.about.memory.turn;
  });
  std::vector<MemoryChange> changes;
  for (const config::Option& option : options) {
    if (ranks_ == 1 && option.about.memory.on_several_ranks) continue;
    add_choices(option, backend_.cuda.has_value(), changes);
    add_passes(option, config::step_shape(config, ranks_), changes);
  }
  if (!config.train.attention_deterministic) {  // not even the same run again has the same bits
    for (MemoryChange& each : changes) each.keeps = std::max(each.keeps, Keeps::kRounding);
  }
  return changes;
}

std::vector<Alternative> RunPlan::alternatives() const {
  std::vector<MemoryChange> changes = single_changes();
  for (int ranks = 1; ranks <= kMostRanks; ranks *= 2) {
    if (ranks == ranks_) continue;
    MemoryChange change = {.keeps = Keeps::kRounding, .ranks = ranks};
    const bool in_passes = config_.train.rows_per_pass > 0;                // too few are refused
    if (!in_passes && config::step_shape(config_, ranks).batch < ranks) {  // at least a row each
      change.overrides.push_back(
          fmt::format("{}={}", config::key_of(config_, config_.train.batch), ranks));
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

// The single_changes() that make the run smaller; changes that keep the most come first.
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
  const Alternative now = {.bytes = as_it_is.bytes, .ms = as_it_is.run->step_ms()};
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
