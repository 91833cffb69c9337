// The memory of a run, and of the same run with one option changed, all predicted. For a run that
// does not fit, and for `fsdp memory`.
// Read next: predicted_run.h (one such run), memory_limit.h, memory_view.h.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/launch/option_field.h"
#include "tools/predict/predicted_run.h"

namespace fsdp::tools {

// Which changes there are says the list of options (tools/launch/option_field.h).
std::string_view describe(Keeps keeps);

struct MemoryChange {
  std::vector<std::string> overrides = {};  // "train.recompute.mode=full"
  Keeps keeps = Keeps::kBits;
  int ranks = 0;  // 0: as many as before

  std::string text() const;   // "train.recompute.mode=full", "8 ranks"
  std::string flags() const;  // "--set train.recompute.mode=full"
};

struct Alternative {
  MemoryChange change = {};
  size_t bytes = 0;           // of a rank
  double ms = 0;              // predicted, of a training step: MetaRun::step_ms()
  size_t host = 0, file = 0;  // of rank 0: what is offloaded. On a CPU the host's are in `bytes`
};

struct PlannedRun {
  std::unique_ptr<MetaRun> run;  // of rank 0
  size_t bytes = 0;              // that every rank must have: the most of all ranks
};

enum class Cheapest : uint8_t {
  kBitsFirst,  // what keeps the bits, then what keeps the results up to rounding; by step time
  kFastest,    // by step time; another dtype last
};

struct FittingChanges {
  std::vector<Alternative> fitting;  // cheapest first
  Alternative least;                 // the smallest of all that were looked at
};

class RunPlan {
 public:
  // `vocabulary`: of the tokenizer. `backend`: what computes. `rates`: what calls take, for the
  // milliseconds; null: nominal ones.
  RunPlan(config::TrainConfig config, int64_t vocabulary, PredictedData data, int ranks,
          BackendOptions backend, std::shared_ptr<CallRates> rates = nullptr);

  // Error if train refuses it, or it needs more than `stop_above` (0: no matter).
  PlannedRun run(const MemoryChange& change = {}, size_t stop_above = 0) const;
  // Of one change at a time, least memory first; without those that train would refuse.
  std::vector<Alternative> alternatives() const;
  // The cheapest `count` changes that need `limit` at the most: one change, two, or as many as it
  // takes. Never another number of ranks. Where all changes on top of each other are too large,
  // pairs are not looked at.
  FittingChanges changes_that_fit(size_t limit, size_t count,
                                  Cheapest cheapest = Cheapest::kBitsFirst) const;

  const config::TrainConfig& config() const { return config_; }
  int ranks() const { return ranks_; }

 private:
  std::vector<MemoryChange> single_changes() const;
  std::vector<Alternative> smaller_than(size_t bytes) const;
  std::vector<Alternative> one_on_the_other(const std::vector<Alternative>& single,
                                            const Alternative& now, size_t limit) const;
  std::optional<Alternative> look_at(const MemoryChange& change, size_t stop_above = 0) const;
  struct Changed {
    config::TrainConfig config;
    PredictedData data;
    int ranks = 1;
    PlacedOptions session = {};
  };
  Changed changed(const MemoryChange& change) const;

  config::TrainConfig config_;
  int64_t vocabulary_;
  PredictedData data_;
  int ranks_;
  BackendOptions backend_;
  std::shared_ptr<CallRates> rates_;
  // By text(): who wants the alternatives often wants those that fit next.
  mutable std::map<std::string, std::optional<Alternative>> looked_at_;
};

}  // namespace fsdp::tools
