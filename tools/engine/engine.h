// A module on this rank, sharded and trained: its tape, its units and the order of its steps, put
// together once. Any module can be one. A language model and its batches: session.h.
// Steps only enqueue; StepHandle::read() waits.
// Read next: train_step.h (the order of a step), comm/fsdp/options.h. Not here: the backends
// (kernels), the transports (comm), who chooses them for the program fsdp
// (tools/train/placed_session.h).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "core/backend.h"
#include "core/host_inputs.h"
#include "models/weights.h"
#include "tools/engine/train_step.h"

namespace fsdp {

struct Places {
  std::unique_ptr<Backend> device;  // computes
  // Called when something is to lie there, once and only then; the device outlives what is made.
  // Null: nothing can lie there.
  using Make = std::function<std::unique_ptr<Backend>(Backend& device)>;
  Make host = nullptr;  // the host's memory beside the device, and what computes there
  Make file = nullptr;  // a file in the place of the host's memory: offload: nvme
  // Of the same ranks as the world, between their devices; null: devices talk over the world.
  std::unique_ptr<comm::Communicator> devices = nullptr;
};

struct EngineOptions {
  comm::WrapPolicy wrap;   // which modules become units (comm/fsdp/plan.h)
  comm::FsdpOptions fsdp;  // host, file, training and detect_overflow follow from the rest
  TrainStepOptions step;
  bool inputs_on_host = false;  // of the pieces that backward computes again
};

class Engine {
 public:
  // Takes the places. Make the module before, on `*places.device`. Collective over `world`, whose
  // lifetime must exceed the engine's.
  Engine(comm::Communicator& world, Places&& places, std::unique_ptr<Module> module,
         const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Gives the parameters their values; collective. See models/weights.h.
  void initialise(const models::FillFunction& fill);
  void initialise_from_first_rank(const models::FillFunction& fill);  // null on the others
  std::vector<Parameter*> parameters() { return module_->parameters(); }

  TrainStep& steps() { return *steps_; }
  optim::Optimizer& optimizer() { return steps_->optimizer(); }
  optim::LossScaler* loss_scaler() { return steps_->loss_scaler(); }  // null: none

  Module& module() { return *module_; }
  comm::FullySharded& sharded() { return *sharded_; }
  Tape& tape() { return tape_; }
  comm::Communicator& world() {
    return world_;
  }  // between hosts, even where devices have a communicator of their own

  Backend& backend() { return *device_; }
  // Of what lies in the host's memory and not in the backend's; null: nothing does.
  Backend* host() { return host_.get(); }
  // Memory that the host reaches: the backend's own, or else the host's.
  Backend& host_memory();
  Backend* file() { return file_.get(); }  // where it lies instead; null: in the host's memory
  // The most that this rank has taken of the memory of what computes, which for a CPU is its host.
  size_t peak_memory() const;

  // Where the parts of steps are noted; null: nowhere. Not owned. A backend that has a profiler is
  // told of them.
  void set_phases(TracePhases* phases);
  TracePhases* phases() const { return phases_; }
  void set_trace(Trace* trace);  // of all its backends, when they are idle; null: off. Not owned

 private:
  comm::Communicator& world_;
  TracePhases* phases_ = nullptr;
  Places::Make make_host_;
  std::unique_ptr<Backend> device_;
  std::unique_ptr<comm::Communicator> devices_;  // null: they talk over the world
  std::unique_ptr<Module> module_;               // its memory is the device's, which outlives it
  std::unique_ptr<Backend> host_, file_;
  std::unique_ptr<HostInputs> host_inputs_;  // null: none wait on the host
  Tape tape_;
  std::unique_ptr<comm::FullySharded> sharded_;
  std::unique_ptr<TrainStep> steps_;
};

}  // namespace fsdp
