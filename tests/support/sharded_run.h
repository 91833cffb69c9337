// A few training steps of a tiny model on ranks as threads, with the engine's own calls, for tests
// that compare one way of sharding with another. Every run sees the same global batches
// and the same initial values, whatever its number of ranks. Read next:
// tests/comm/fsdp/parity_test.cpp for its use.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/local_transport.h"
#include "core/trace.h"
#include "kernels/cpu/cpu_backend.h"
#include "models/causal_lm.h"
#include "tools/engine/engine.h"
#include "tools/engine/sharded_values.h"

namespace fsdp::test {

// Three blocks of width 24; nothing but the width divides by anything.
models::ModelConfig small_gpt2();      // tied head, biases, learned positions
models::ModelConfig small_llama();     // untied head, rope, grouped heads
models::ModelConfig small_qwen2();     // biases; q, k, v are one product, gate and up another
models::ModelConfig small_fairseq();   // position rows that nobody uses, a scaled table
models::ModelConfig small_workshop();  // norms last, a tied head with a bias

// A unit per block, and what is outside of the blocks is two units.
comm::WrapPolicy wrap_blocks_and_ends(const models::ModelConfig& config);

// What a pass computes the loss of.
struct Pass {
  const Tensor& tokens;  // (B, T), i32
  const Tensor& labels;  // (B * T), i32, shifted
  ForwardContext context;
  double gradient_scale = 1;
  int step = 0;
  int micro_step = 0;
};

// A model and how to run it.
struct Subject {
  std::unique_ptr<Module> module;
  std::string block_class;                  // modules of this class become units
  std::function<Tensor(const Pass&)> loss;  // sum over the labels
  bool inputs_on_host = false;              // recompute: offload
};
using SubjectFactory = std::function<Subject(Backend&, DType)>;
SubjectFactory causal_lm(const models::ModelConfig& config,
                         RecomputeMode recompute = RecomputeMode::kNone, int64_t every = 1);
// Transformer blocks of this config run in the order that `order` gives for a pass: blocks may be
// left out or come twice. The head is tied to the embedding.
using BlockOrder = std::function<std::vector<int>(const Pass&)>;
SubjectFactory block_list(const models::ModelConfig& config, BlockOrder order,
                          RecomputeMode recompute = RecomputeMode::kNone);

class RankRun;

struct RunSpec {
  SubjectFactory subject = causal_lm(small_gpt2());
  int ranks = 2;  // that the rows of a batch are dealt to
  int steps = 3;
  comm::FsdpOptions fsdp = {};
  comm::WrapPolicy wrap = nullptr;  // null: a unit per block
  double learning_rate = 1e-2;
  double clip_norm = 1;
  double clip_power = 2;
  optim::LossScalerOptions loss_scale = {};  // only what overflow does to it: see gradient_factor
  // A large epsilon: GPT-2's key biases have no gradient but rounding noise, which AdamW would
  // otherwise turn into steps of the learning rate.
  optim::OptimizerOptions optimizer = {.epsilon = 1e-4};
  optim::WholeMatrices matrices = {};
  int64_t rows = 12;  // of a global batch, dealt evenly to ranks, micro-steps, forwards
  // With fixed_order: of a step, over all ranks; 0: one for each rank and micro-step. Ranks that
  // have none in the last micro-step compute a gradient that nobody may see.
  int passes = 0;
  int forwards = 1;             // of a micro-step, before their backwards, the last one first
  bool training = false;        // with dropout
  bool keep_gradients = false;  // see RunResult
  std::function<bool(const Parameter&)> frozen = nullptr;               // null: none
  std::function<cpu::CpuOptions(int rank)> cpu = nullptr;               // null: the defaults
  std::function<std::unique_ptr<Backend>(int rank)> backend = nullptr;  // null: the CPU's
  // Of the backend of what is offloaded; null: the defaults.
  std::function<cpu::CpuOptions(int rank)> host = nullptr;
  std::string offload_folder = {};  // with offload: nvme; "": any
  // Makes the backend of what is offloaded, and that of a file; null: the CPU's.
  std::function<std::unique_ptr<Backend>(cpu::CpuOptions)> host_backend = nullptr;
  std::function<std::unique_ptr<Backend>(const std::string& folder, cpu::CpuOptions)> file_backend =
      nullptr;
  std::function<void(RankRun&)> prepared = nullptr;  // on every rank, before the first step
  std::function<void(RankRun&, int step)> before_step = nullptr;
};

using NamedValues = std::map<std::string, std::vector<double>>;  // by parameter

struct RunResult {
  std::vector<double> losses;  // by step: sum over the labels of the global batch
  std::vector<double> norms;   // by step: of the gradient of the mean loss, before clipping
  NamedValues parameters;      // after the last step
  NamedValues gradients;       // reduced, of the last step, if kept
  bool operator==(const RunResult&) const = default;
};

// Runs it. CHECKs that all ranks end with the same results, to the bit.
RunResult train(const RunSpec& spec);
// This rank's part of it, on a world that is there.
RunResult train_on(comm::Communicator& world, const RunSpec& spec);
// The same without any communication: one rank runs the passes of all ranks one after another and
// adds their gradients in rank order. With fixed_order the bits must be those of train().
RunResult train_as_one_rank(RunSpec spec);

struct WithTrace {
  Trace trace;  // outlives the engine, whose streams write there
};

// One rank of a run: an engine, and the batches that it sees. Steps only enqueue; wait() and
// result() wait.
class RankRun : public WithTrace, public Engine {
 public:
  RankRun(comm::Communicator& world, const RunSpec& spec);

  void step(int step);  // all micro-steps, clip, optimizer
  void forward_backward(int step);
  void forward_backward_of_all_ranks(int step);
  void update();
  void backward_again(int step);  // a second backward of a micro-step, which no TrainStep has
  // The same, of everything that a step put on streams, in the order of issue.
  std::vector<TraceEvent> traced_step(int step);
  void wait();                      // rethrows what went wrong on the compute stream
  void recover(size_t steps_done);  // after an error: forgets all steps but the first ones
  RunResult result();

  int rank() { return world().rank(); }
  std::string scope() { return backend().scope(); }  // the unit that the host is issuing for
  void collect_gradients();                          // into the result

  int32_t bad_label = 0;  // of the next passes' first position, unless 0: makes the loss fail
  double gradient_factor = 1;

 private:
  struct Step {
    StepHandle handle;
    std::optional<double> loss = {};  // in place of the handle's
  };
  RankRun(comm::Communicator& world, const RunSpec& spec, Places&& places);
  RankRun(comm::Communicator& world, const RunSpec& spec, Places&& places, Subject&& subject);
  bool has_pass(int pass) const;       // false: it is behind the last of RunSpec::passes
  Tensor forward(int step, int pass);  // loss of one of the step's passes

  RunSpec spec_;
  int acting_rank_;  // whose rows a pass takes
  Subject subject_;  // the engine has its module
  std::vector<Step> taken_;
  std::list<Tensor> samples_;  // of a micro-step's passes: dropout reads them in backward
  std::optional<double> loss_of_all_ranks_;
  RunResult result_;
};

// For before_step: twice the loss of this rank's own tokens, without gradients; CHECKs that it is
// the same when the units were given back in between.
void evaluate_between_steps(RankRun& run, int step);

// Largest |a - b| / |b|, over losses and norms.
double loss_difference(const RunResult& a, const RunResult& b);
double norm_difference(const RunResult& a, const RunResult& b);
// Largest over parameters of max |a - b| / max |b|.
double largest_difference(const NamedValues& a, const NamedValues& b);

// Delays of 0 to `longest_us` microseconds before some tasks of every stream.
cpu::CpuOptions random_delays(uint64_t seed, int longest_us);

}  // namespace fsdp::test
