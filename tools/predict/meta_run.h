// A run of one rank without bytes: the same Session, on kernels/meta and comm/meta_transport.h.
// What the ledger counts here is what it counts in the run itself, to the byte, in every category
// but transport staging, which is the transport's own. Not here: how it is shown to people
// (memory_report.h, unit_timeline.h).
//
// [Note: settled] The second step finds what the first one left (memory that is allocated when it
// is first used and kept). The gaps between the blocks of a CPU's heaps may take some steps more to
// find their places, and an evaluation in between, or a batch of another shape, may move them
// again. What leaves the heaps and all that is held as it found them does so again: it has settled,
// until something else changes them.
//
// [Note: micro-steps alike] Micro-steps between the first and the last are alike, in memory from
// the second on and in time once no stream goes on catching up with another. A run of many has the
// session of a run of few, and its step has the one before the last as often as it takes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/trace_phases.h"
#include "kernels/meta/meta_backend.h"
#include "tools/data/loader.h"
#include "tools/predict/call_rates.h"
#include "tools/train/placed_session.h"

namespace fsdp::tools {

// When a rank holds most, in all categories together.
struct PeakMoment {
  std::string phase;  // "backward"
  std::string unit;   // that the host was issuing for; "": none
  std::array<size_t, kMemoryCategories> memory{};
};

// A call of a training step, in the order of the host.
struct StepCall {
  std::string name;      // of a kernel or a collective
  std::string unit;      // that the host was issuing for
  std::string phase;     // "forward", "backward", "recompute" (a forward within it), "optimizer"
  int64_t bytes = 0;     // of a collective
  bool computes = true;  // on the compute stream
  std::string stream;
  double begin_ms = 0, end_ms = 0;  // predicted, since the step began
  Cost cost = {};                   // of a kernel
  std::optional<MatmulExtents> product = {};
  int64_t times = 1;  // one micro-step after the other. [Note: micro-steps alike]
};

struct PhaseMemory {
  std::string name;   // "loading", "steps", "evaluation"
  MemoryUsage usage;  // peaks: of this phase
  MemoryUsage host;   // of what is offloaded
  MemoryUsage file;   // of what lies in a file
};

// The form of rows without a text.
struct SyntheticRows {
  bool masked = false;  // padding is hidden
  // Tokens of each document, where a row has several that do not see each other; 0: a row is one.
  int64_t document = 0;
};
// Rows of a global batch as they are dealt to a rank; token ids without meaning. Where a family has
// a token for padding (fairseq's), every row has one: the most that a batch takes. `rows_per_pass`:
// of the batch; 0: it has no passes.
Batch synthetic_batch(const models::ModelConfig& model, int64_t rows, int64_t length, int rank,
                      int ranks, int64_t rows_per_pass = 0, const SyntheticRows& kind = {});

// Of a run that was to stop there.
class TooMuchMemory : public Error {
 public:
  using Error::Error;
};

class MetaRun {
 public:
  // Loads nothing yet. Of `options.backend` only the kind of device, the CPU's threads and `meta`
  // matter. `rates` say what the calls of a step take; null: those of
  // kUsualMachine.
  MetaRun(PlacedOptions options, int ranks, int rank = 0,
          std::shared_ptr<CallRates> rates = nullptr);
  ~MetaRun();

  // For the batches from now on.
  void set_rows(const SyntheticRows& kind) { kind_ = kind; }
  // Of the batches from now on, see Batch; 0: they have no passes.
  void set_rows_per_pass(int64_t rows) { rows_per_pass_ = rows; }
  // A step stands for one of so many micro-steps, more than the session has; the rows of batches
  // are those of the whole step. Not for passes. [Note: micro-steps alike]
  void set_micro_steps(int64_t of_step) { micro_steps_ = of_step; }
  // From now on, TooMuchMemory once needed() is more; 0: never. For a search that only asks what
  // fits.
  void stop_above(size_t bytes) { most_ = bytes; }
  // Anything that the run does with its session. What has the name of an earlier phase belongs to
  // it. True: all that is held is as it was before. [Note: settled]
  bool phase(const std::string& name, const std::function<void(Session&)>& work);
  // `fill` must look at no values.
  void load(const models::FillFunction& fill, bool from_first_rank = false);
  // One step, or the evaluation of one batch. `batch`: of all ranks.
  bool step(const data::BatchShape& batch);
  bool evaluate(const data::BatchShape& batch);
  // What a step, or an evaluation's batch, takes once there were some, for step_ms() and
  // last_step(). What it changes in memory counts nowhere.
  void time_step(const data::BatchShape& batch);
  void time_evaluation(const data::BatchShape& batch);
  // Steps alike, and the time of one more.
  void steps(int64_t rows, int64_t length, int64_t count = 2);
  // Something that the run makes now and has until its end.
  void keep(std::shared_ptr<void> object) { kept_.push_back(std::move(object)); }

  Session& session() { return *session_; }
  comm::Communicator& world() { return *world_; }
  const std::vector<PhaseMemory>& phases() const { return done_; }
  MemoryUsage usage() const;       // peaks: of all phases
  MemoryUsage host_usage() const;  // the same of what is offloaded
  MemoryUsage file_usage() const;  // and of its file, which takes no memory
  bool on_gpu() const { return on_gpu_; }
  // What the device must have for this rank. Of a CPU: usage(), what lies between its blocks, the
  // scratch memory of its kernels. Of a GPU: usage(), and kernels/meta/gpu_workspace.h.
  size_t device_needed() const { return there().usage.held_peak; }
  size_t host_needed() const { return there().host.held_peak; }  // for what is offloaded
  size_t file_needed() const { return there().file.held_peak; }  // bytes of the disk
  // What the machine must have: of a CPU both, of a GPU the device's.
  size_t needed() const { return device_needed() + (on_gpu_ ? 0 : host_needed()); }
  const PeakMoment& moment() const { return moment_; }
  // Predicted milliseconds of a training step, and of a batch of an evaluation; 0: not timed.
  double step_ms() const { return step_ms_; }
  double evaluation_ms() const { return evaluation_ms_; }
  // What lies there at that moment, the largest first; for a backend that keeps its blocks.
  std::vector<meta::LoggedBlock> blocks_then() const;
  const std::vector<StepCall>& last_step() const { return calls_; }

 private:
  meta::MetaBackend& backend();
  const Batch& batch_of(const data::BatchShape& shape);
  const Batch& batch_of_step(data::BatchShape shape);
  struct Parts {       // micro-steps of a step, and of the session's
    int64_t rows = 0;  // of a shorter one
    int64_t longer = 0, longer_run = 0, shorter = 0, shorter_run = 0;
  };
  Parts parts_of(const data::BatchShape& shape) const;
  void add_micro_steps(const Parts& parts);
  std::vector<meta::MetaBackend*> backends() const;
  PhaseMemory there() const;
  // Of each backend: what is held, at the most and now, and the end of its heaps.
  std::vector<std::array<size_t, 3>> held() const;
  double timed_ms(const std::function<void()>& before, const std::function<void()>& work);
  void note(const meta::MetaCall& call);
  void note_peak(const std::string& unit);

  std::shared_ptr<CallRates> rates_;
  bool on_gpu_;
  std::unique_ptr<comm::Communicator> world_;
  Trace trace_;  // empty: only its phases are of use
  TracePhases marks_{trace_};
  std::unique_ptr<Session> session_;
  std::vector<std::shared_ptr<void>> kept_;  // of the session
  const meta::BlockLog* log_ = nullptr;
  size_t logged_ = 0;  // when most was held
  size_t peak_ = 0;    // of the total, in all phases
  size_t most_ = 0;    // that may be needed; 0: no matter
  PeakMoment moment_;
  std::vector<PhaseMemory> done_;
  std::optional<PhaseMemory> last_;  // at the end of the phase that was the last to run
  std::map<std::pair<int64_t, int64_t>, Batch> batches_;  // by rows and length
  int64_t rows_per_pass_ = 0, micro_steps_ = 0;           // 0: what the session has
  uint32_t steps_ = 0;
  bool in_phase_ = false, timing_ = false, recording_ = false;
  SyntheticRows kind_;
  double step_begin_s_ = 0, step_ms_ = 0, evaluation_ms_ = 0;
  std::vector<StepCall> calls_;
};

}  // namespace fsdp::tools
