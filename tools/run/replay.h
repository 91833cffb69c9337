// fsdp replay: computes steps of a run again, from the checkpoint before them, and compares what it
// finds with what the run has written: loss and gradient norm of every logged step, the hashes of
// its units (tools/checkpoint/unit_hashes.h) where the run has kept them, and the state of the next
// checkpoint. It writes nothing. Not here: continuing a run (tools/checkpoint/resume.h).
//
// [Note: how equal] On the number of ranks that did the steps, and in fixed order on any number,
// everything has to be equal to the bit. Else sums are formed in another order (so they are with
// train.attention_deterministic: false): losses and norms are compared to kReplayTolerance (f32,
// f64) or kReplayTolerance16 (bf16, f16), relative, and hashes and states are not.
//
// [Note: where it began] A step computes forward, backward and update, in this order. Weights that
// differ before the step are the work of the update before it, or of what the replay began with: of
// all other units the weights are equal, so the unit is known. With equal weights a gradient that
// differs is the work of this step. Backward computes the gradients of one unit after the other,
// and each from that of the unit before: the first one that differs is where it began. Where all of
// them differ, so does what backward began with, if the loss does: then it was the forward pass,
// and gradients do not say in which unit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/checkpoint/resume.h"
#include "tools/checkpoint/unit_hashes.h"
#include "tools/engine/session.h"
#include "tools/launch/launch.h"

namespace fsdp::tools {

constexpr double kReplayTolerance = 1e-4;
constexpr double kReplayTolerance16 = 2e-2;

struct RecordedStep {
  double loss = 0;
  double grad_norm = 0;
};

struct ReplayPlan {
  ResumePlan resume;           // where it begins, with the configuration of the steps after it
  int ranks = 0;               // that did these steps
  bool with_changes = false;   // the run went on there with --resume-with-changes
  std::filesystem::path next;  // the checkpoint that it comes to; empty: there is none
  int64_t last = 0;            // the step that it ends with: of `next`, or the one asked for
  std::map<int64_t, RecordedStep> recorded;
  UnitHashes hashes = {};
};

// Error, which says what can be replayed, when `step` cannot.
ReplayPlan plan_replay(const std::filesystem::path& run, int64_t step);

// On rank 0 `say` gets what it finds. Returns the status: 0 when all is equal. Collective.
int replay(const ReplayPlan& plan, RankContext& rank,
           const std::function<void(const std::string& line)>& say);

// ---- for tests ----
// Lines of steps, each the last one of its step; lines that are no numbers are left out.
std::map<int64_t, RecordedStep> recorded_steps(const std::string& metrics,
                                               const std::string& source);

// What the hashes of the step before have said.
enum class StepBefore : uint8_t { kEqual, kNoHashes, kCheckpoint };  // the replay begins there

struct ComparedStep {
  int64_t step = 0;
  std::vector<UnitHash> recorded, computed;  // by unit
  std::optional<bool> equal_loss = {};       // none: the log has no line of the step
  StepBefore before = StepBefore::kEqual;
};

// "the difference began in unit blocks.1: ..."; "": nothing differs. `units`: see UnitHasher.
std::string origin_of(const std::vector<std::string>& units, const ComparedStep& step);

}  // namespace fsdp::tools
