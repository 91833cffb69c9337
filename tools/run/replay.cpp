// See [Note: how equal] and [Note: where it began].
#include "tools/run/replay.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/ranges.h>

#include "comm/exchange.h"
#include "comm/fsdp/fully_sharded.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/text/counted.h"
#include "tools/checkpoint/owned_state.h"
#include "tools/checkpoint/read_checkpoint.h"
#include "tools/checkpoint/run_folder.h"
#include "tools/report/run_reader.h"
#include "tools/run/training_run.h"

namespace fsdp::tools {
namespace {

using Names = std::vector<std::string>;

Names that_differ(const Names& units, const ComparedStep& step, uint64_t UnitHash::*hash) {
  Names out;
  for (size_t i = 0; i < units.size(); ++i) {
    if (step.recorded[i].*hash != step.computed[i].*hash) out.push_back(units[i]);
  }
  return out;
}

std::string origin_of_weights(const Names& units, const ComparedStep& step, const Names& differ) {
  const bool all = differ.size() == units.size() && units.size() > 1;
  const std::string where =
      all ? "all units"
          : fmt::format("unit{} {}", differ.size() == 1 ? "" : "s", fmt::join(differ, ", "));
  std::string why = fmt::format("there are no hashes of step {}", step.step - 1);
  if (step.before == StepBefore::kCheckpoint) {
    why = "the replay began with these weights, from the checkpoint";
  } else if (step.before == StepBefore::kEqual) {
    why = fmt::format(
        "the gradients of step {} are equal, so its update has done it, or the "
        "optimizer's state",
        step.step - 1);
  }
  return fmt::format("the difference began in {}: weights differ before step {}; {}", where,
                     step.step, why);
}

}  // namespace

std::string origin_of(const Names& units, const ComparedStep& step) {
  const Names weights = that_differ(units, step, &UnitHash::weights);
  if (!weights.empty()) return origin_of_weights(units, step, weights);
  const Names gradients = that_differ(units, step, &UnitHash::gradient);
  if (gradients.empty()) return "";
  const bool all = gradients.size() == units.size();
  if (!all || step.equal_loss == true) {
    return fmt::format(
        "the difference began in unit {}: of step {} its gradient is the first in backward that "
        "differs; weights are equal",
        gradients.front(), step.step);
  }
  const std::string unless =
      step.equal_loss ? "" : fmt::format(", or in unit {}, the first in backward", units.front());
  return fmt::format(
      "the difference began in the forward pass of step {}{}: weights are equal, the gradients of "
      "all units are not",
      step.step, unless);
}

namespace {

namespace fs = std::filesystem;

// The first element that differs, in the order of the model's parameters.
struct Difference {
  int64_t place = INT64_MAX;  // of the parameter, then of its state
  int64_t element = 0;
  double stored = 0, computed = 0;
};

class Replay {
 public:
  Replay(const ReplayPlan& plan, RankContext& rank,
         const std::function<void(const std::string& line)>& say)
      : plan_(plan),
        rank_(rank),
        options_{.resume_with_changes = plan.with_changes, .say = say},
        settled_{.plan = plan.resume, .locks = {}},
        run_(options_, settled_, rank),
        before_(plan.resume.manifest->progress),
        spikes_(plan.resume.config.train.spike, before_.good_norms) {}

  int run() {
    Session& session = run_.prepare();
    batches_ = run_.training();
    schedule_ = run_.config().schedule();
    const std::string other = what_rounds();
    inexact_ = other;
    say(fmt::format(
        "steps {} to {}, {}", first(), plan_.last,
        exact() ? "compared to the bit" : fmt::format("compared to {:g}: {}", tolerance(), other)));
    const bool steps_equal = replay_steps(session);
    const bool state_equal = compare_state(session);
    return steps_equal && state_equal ? 0 : 1;
  }

 private:
  void say(const std::string& text) const {
    if (rank_.world.rank() == 0) options_.say(text);
  }
  // What is not as it was, so that sums round otherwise; "": nothing. Collective.
  std::string what_rounds() const {
    const std::string device = rank_.world.exchange(run_.device()).front();
    const std::string& before = plan_.resume.manifest->device;
    if (device != before) return fmt::format("{} instead of {}", device, before);
    if (!plan_.resume.config.train.attention_deterministic) {
      return "train.attention_deterministic: false adds up in any order";
    }
    const int ranks = rank_.world.size();
    if (ranks == plan_.ranks || plan_.resume.config.fsdp.options.fixed_order) return "";
    return fmt::format("{} instead of {}", counted(ranks, "rank"), plan_.ranks);
  }
  double tolerance() const {
    const DType dtype = plan_.resume.config.train.dtype;
    return dtype == DType::kBF16 || dtype == DType::kF16 ? kReplayTolerance16 : kReplayTolerance;
  }
  bool equal(double recorded, double computed) const {
    if (exact()) return recorded == computed;
    return std::abs(recorded - computed) <= tolerance() * std::max(std::abs(recorded), 1e-30);
  }

  int64_t first() const { return plan_.resume.manifest->step() + 1; }

  // As Trainer does it. `look` is called when the step's gradients are there.
  StepValues compute(
      Session& session, int64_t step, const std::function<void()>& look = [] {}) {
    const double rate = schedule_.rate(step - 1 - before_.skipped);
    if (session.steps().updates_in_backward()) session.steps().begin_update(rate);
    session.forward_backward(batches_.get(step - 1), static_cast<uint32_t>(step - 1), true);
    look();
    const StepValues now = session.update(rate, spikes_.limit()).read();
    if (now.skipped == kNotSkipped) {
      spikes_.add(now.grad_norm);
    } else {
      before_.skipped += session.scales_loss() || now.skipped == kSpike;
    }
    return now;
  }

  bool replay_steps(Session& session) {
    UnitHasher hasher(session);
    const bool has_hashes = exact() && plan_.hashes.units == hasher.units();
    int64_t logged = 0, hashed = 0;
    ComparedStep now = {.before = StepBefore::kCheckpoint};
    for (now.step = first(); now.step <= plan_.last; ++now.step) {
      const auto hashes = plan_.hashes.steps.find(now.step);
      const bool is_hashed = has_hashes && hashes != plan_.hashes.steps.end();
      const StepValues values = compute(session, now.step, [&] {
        if (is_hashed) now.computed = hasher.hash();
      });
      const std::string difference = difference_in_log(now, values);
      std::string origin;
      if (is_hashed) {
        now.recorded = hashes->second;
        origin = origin_of(hasher.units(), now);
      }
      if (!difference.empty() || !origin.empty()) {
        say(fmt::format("step {} is the first that differs: {}", now.step,
                        difference.empty() ? "in the hashes of its units" : difference));
        if (is_hashed) say(origin.empty() ? "the hashes of its units are equal" : origin);
        // To the checkpoint, whose state says more.
        for (int64_t step = now.step + 1; step <= plan_.last; ++step) compute(session, step);
        return false;
      }
      logged += now.equal_loss.has_value();
      hashed += is_hashed;
      now.before = is_hashed ? StepBefore::kEqual : StepBefore::kNoHashes;
    }
    say(fmt::format("{} logged steps: equal", logged));
    last_is_hashed_ = now.before == StepBefore::kEqual;
    if (exact() && hashed == 0 && plan_.resume.config.checkpoint.unit_hashes) {
      say(fmt::format("warning: {}: no hashes of these steps and units: not compared",
                      (plan_.resume.run_directory / "unit_hashes.bin").string()));
    }
    if (hashed > 0) {
      say(fmt::format("{} steps: hashes of the weights and gradients of {} units: equal", hashed,
                      hasher.units().size()));
    }
    return true;
  }

  // What the log has otherwise; "": nothing. Notes whether it has the loss.
  std::string difference_in_log(ComparedStep& step, const StepValues& now) const {
    const auto recorded = plan_.recorded.find(step.step);
    step.equal_loss.reset();
    if (recorded == plan_.recorded.end()) return "";
    const auto [loss, norm] = recorded->second;
    step.equal_loss = equal(loss, now.loss);
    if (*step.equal_loss && equal(norm, now.grad_norm)) return "";
    return fmt::format("loss {} recorded, {} computed; gradient norm {} recorded, {} computed",
                       loss, now.loss, norm, now.grad_norm);
  }

  bool exact() const { return inexact_.empty(); }

  bool compare_state(Session& session) {
    if (plan_.next.empty()) {
      say("no checkpoint after it: no state to compare");
      return true;
    }
    if (!exact()) {
      say(fmt::format("{}: not compared: {}", plan_.next.string(), inexact_));
      return true;
    }
    std::optional<Checkpoint> stored;
    agree(rank_.world, [&] {
      stored.emplace(plan_.next);
      if (rank_.world.rank() != 0) return;
      const std::vector<std::string> problems = stored->verify_all();
      FSDP_CHECK(problems.empty(), "{}", problems.front());
    });
    if (hash_state(session) == stored->manifest().hash) {
      say(fmt::format("{}: weights and optimizer state: equal", plan_.next.string()));
      return true;
    }
    name_difference(session, *stored);
    if (last_is_hashed_) {
      say(fmt::format(
          "the weights before step {} and its gradients are equal: the difference began "
          "in the optimizer's update of this step, or in the checkpoint",
          plan_.last));
    }
    return false;
  }

  void name_difference(Session& session, Checkpoint& stored) {
    const std::vector<Parameter*> order = session.parameters();
    std::vector<std::string> names;  // of the states, by place
    Difference mine;
    agree(rank_.world, [&] {
      for (const StatePartOwned& part : owned_state(session)) {
        const auto at = std::find(order.begin(), order.end(), part.parameter) - order.begin();
        const Difference found =
            first_difference(session, part, 2 * at + (part.weights ? 0 : 1), stored);
        if (std::pair(found.place, found.element) < std::pair(mine.place, mine.element)) {
          mine = found;
        }
      }
    });
    const std::vector<Difference> all = comm::exchange_values(rank_.world, mine);
    const Difference& first = *std::min_element(all.begin(), all.end(), [](auto& a, auto& b) {
      return std::pair(a.place, a.element) < std::pair(b.place, b.element);
    });
    if (first.place == INT64_MAX) {
      return say(fmt::format("{}: its hash does not match its tensors", plan_.next.string()));
    }
    const Parameter& parameter = *order[static_cast<size_t>(first.place / 2)];
    say(
        fmt::format("{}: unit {} is the first that differs: {} of {}, element {}: {} stored, {} "
                    "computed",
                    plan_.next.string(), unit_of(session, parameter),
                    first.place % 2 == 0 ? "value" : "optimizer state", parameter.name(),
                    first.element, first.stored, first.computed));
  }

  static Difference first_difference(Session& session, const StatePartOwned& part, int64_t place,
                                     Checkpoint& stored) {
    const Tensor values = part.values.view(Shape{part.values.numel()});
    const Tensor there = Tensor::empty(session.backend(), values.shape(), values.dtype());
    stored.read({{part.name, part.first, there}});
    const std::vector<double> a = there.to_doubles(), b = values.to_doubles();
    for (size_t i = 0; i < a.size(); ++i) {
      if (std::memcmp(&a[i], &b[i], sizeof a[i]) == 0) continue;
      return {place, part.first + static_cast<int64_t>(i), a[i], b[i]};
    }
    return {};
  }

  static std::string unit_of(Session& session, const Parameter& parameter) {
    for (const auto& unit : session.sharded().units()) {
      for (const comm::ParameterSegment& segment : unit->parameters.segments()) {
        for (const auto& each : segment.layout.parameters()) {
          if (each.parameter == &parameter) return unit->name;
        }
      }
    }
    return "root";
  }

  const ReplayPlan& plan_;
  RankContext& rank_;
  std::string inexact_;  // why results may differ in the last bits; "": they may not
  const TrainingRunOptions options_;
  SettledPlan settled_;
  TrainingRun run_;
  TrainTotals before_;  // of the checkpoint; its counts of skipped steps and norms go on
  SpikeRule spikes_;
  BatchSource batches_;
  optim::Schedule schedule_;
  bool last_is_hashed_ = false;  // the last step was compared by its hashes, and is equal
};

}  // namespace

std::map<int64_t, RecordedStep> recorded_steps(const std::string& metrics,
                                               const std::string& source) {
  std::map<int64_t, RecordedStep> out;
  for (size_t begin = 0, number = 1; begin < metrics.size(); ++number) {
    const size_t end = std::min(metrics.find('\n', begin), metrics.size());
    const Json line =
        parse_json_line(metrics.substr(begin, end - begin), fmt::format("{}:{}", source, number));
    begin = end + 1;
    if (!line.contains("grad_norm") || !line.at("loss").is_number() ||
        !line.at("grad_norm").is_number()) {
      continue;
    }
    out[line.at("step")] = {line.at("loss"), line.at("grad_norm")};
  }
  return out;
}

namespace {

// A run may have gone on from the checkpoint with another configuration, on other ranks. What it
// went on with is in the next checkpoint or, where there is none, beside metrics.jsonl.
void take_configuration(const fs::path& run, const fs::path& next, ReplayPlan& plan) {
  const Manifest& before = *plan.resume.manifest;
  const auto stored = [](const fs::path& checkpoint, const Manifest& manifest) {
    config::TrainConfig config =
        config::parse_config(manifest.config, (checkpoint / kManifestName).string(), {});
    keep_paths(config, manifest.working_directory);
    return config;
  };
  plan.ranks = before.world_size;
  config::TrainConfig config = stored(plan.resume.checkpoint, before);
  const config::TrainConfig then = config;
  if (next.empty()) {
    const Json arguments = read_json_file(run / "run_args.json");
    config = config::read_config(run / "config.yaml", {});
    keep_paths(config, arguments.value("working_directory", ""));
    plan.ranks = arguments.at("world_size");
    plan.resume.manifest->progress.left_out = read_run_record(run).left_out;
  } else if (const Manifest after = read_manifest(next);
             before.run.empty() ? after.run_directory == before.run_directory
                                : after.run == before.run) {
    config = stored(next, after);
    plan.ranks = after.world_size;
    plan.resume.manifest->progress.left_out = after.progress.left_out;
  }
  const std::vector<ConfigChange> changes = config_changes(then, config);
  plan.with_changes = std::any_of(changes.begin(), changes.end(),
                                  [](const ConfigChange& change) { return change.refused; });
  plan.resume.config = std::move(config);
  plan.resume.config.runtime.trace = false;
}

}  // namespace

ReplayPlan plan_replay(const fs::path& run, int64_t step) {
  FSDP_CHECK(fs::exists(run / "config.yaml"), "{}: no run directory: no config.yaml in it",
             run.string());
  FSDP_CHECK(fs::exists(run / "metrics.jsonl"), "{}: no metrics.jsonl: nothing to compare with",
             run.string());
  const config::TrainConfig config = config::read_config(run / "config.yaml", {});
  const std::map<int64_t, fs::path> all = checkpoints_in(checkpoint_folder(config, run));
  FSDP_CHECK(!all.empty(), "{}: no checkpoint in it (checkpoint.every)", run.string());
  ReplayPlan plan;
  const fs::path metrics = run / "metrics.jsonl";
  plan.recorded = recorded_steps(read_file(metrics), metrics.string());
  const auto next = all.lower_bound(step);  // the first that has the step
  const int64_t known = std::max(
      all.rbegin()->first, plan.recorded.empty() ? int64_t{0} : plan.recorded.rbegin()->first);
  FSDP_CHECK(next != all.begin() && step <= known,
             "--step: expected {} to {}, what the run has done after its first checkpoint ({}), "
             "got {}",
             all.begin()->first + 1, known, all.begin()->second.filename().string(), step);
  const fs::path& before = std::prev(next)->second;
  plan.last = next == all.end() ? step : next->first;
  if (next != all.end()) plan.next = next->second;
  plan.hashes = read_unit_hashes(run, std::prev(next)->first + 1, plan.last);
  plan.resume.checkpoint = before;
  plan.resume.manifest = read_manifest(before);
  plan.resume.run_directory = run;
  take_configuration(run, plan.next, plan);
  return plan;
}

int replay(const ReplayPlan& plan, RankContext& rank,
           const std::function<void(const std::string& line)>& say) {
  return Replay(plan, rank, say).run();
}

}  // namespace fsdp::tools
