// A program of one's own that trains a sharded language model through the engine. It needs none of
// the rooms beside tools/engine: no configuration, no launcher, no report.
//   train [RANKS]            ranks as threads of this process (2)
//   mpirun -n 4 train mpi    ranks as processes
// Not here: texts and tokenizers, GPUs, checkpoints (the program fsdp has them). Read next:
// tools/engine/README.md, CMakeLists.txt beside this file.
#include <cstdlib>
#include <exception>
#include <string_view>

#include <fmt/format.h>

#include "comm/local_transport.h"
#include "comm/mpi_transport.h"
#include "kernels/cpu/cpu_backend.h"
#include "models/family.h"
#include "models/weights.h"
#include "optim/optimizer_kind.h"
#include "tools/engine/session.h"

namespace {

using namespace fsdp;

constexpr std::string_view kText =
    "A shard is the part of a parameter that a rank keeps. Before a unit computes, its ranks "
    "gather "
    "the parts; after backward each rank keeps the sum of its part of the gradient, and updates "
    "it. ";
constexpr int64_t kLength = 24;  // tokens of a sequence; a byte is a token
constexpr int64_t kRows = 12;    // of a batch, dealt to the ranks
constexpr uint32_t kSteps = 30;

SessionOptions small_llama() {
  SessionOptions options;
  options.model = models::family_defaults("llama");
  options.model.vocabulary = 256;
  options.model.hidden = 32;
  options.model.layers = 2;
  options.model.heads = options.model.kv_heads = 4;
  options.model.head_dim = 8;
  options.model.ffn = 64;
  options.model.max_positions = kLength;
  models::validate(options.model);
  options.max_length = kLength;
  options.fsdp.strategy = comm::Strategy::kFullShard;  // parameters, gradients, optimizer state
  options.optimizer.kind = optim::OptimizerKind::kAdamW;
  return options;
}

// This rank's rows of the batch of all ranks: sequences from here and there in the text.
Batch batch_of(const comm::Communicator& world, const models::ModelConfig& model, uint32_t step) {
  const RowRange mine = deal_rows(kRows, world.rank(), world.size());
  LabelledRows own = {.length = kLength};
  for (int64_t row = mine.first; row < mine.first + mine.count; ++row) {
    const int64_t sample = step * kRows + row;
    const size_t places = kText.size() - static_cast<size_t>(kLength);
    const std::string_view sequence =
        kText.substr(static_cast<size_t>(sample * 7) % places, static_cast<size_t>(kLength));
    own.tokens.insert(own.tokens.end(), sequence.begin(), sequence.end());
    own.samples.push_back(sample);
  }
  own.labels = own.tokens;
  const models::InputRules rules = models::input_rules(model);  // which token a position predicts
  return make_batch(std::move(own), rules, kRows * rules.targets_of_row(kLength));
}

void train(comm::Communicator& world) {
  Places places;
  places.device = std::make_unique<cpu::CpuBackend>();
  const SessionOptions options = small_llama();
  Session session(world, std::move(places), options);
  session.initialise(models::from_scratch(/*seed=*/1));
  for (uint32_t step = 0; step < kSteps; ++step) {
    const StepHandle handle =
        session.train_step(batch_of(world, options.model, step), /*learning_rate=*/3e-3, step);
    const StepValues values = handle.read();  // waits; a loop that overlaps reads one step late
    if (world.rank() == 0) fmt::print("step {:2}  loss {:.6f}\n", step + 1, values.loss);
  }
  const double loss = session.evaluate(batch_of(world, options.model, 0));
  if (world.rank() == 0) fmt::print("{} ranks, loss at the end {:.6f}\n", world.size(), loss);
}

// An error of one rank ends the others, too.
void train_under_mpi() {
  comm::MpiRuntime mpi;
  try {
    train(mpi.world());
  } catch (const std::exception& error) {
    fmt::print(stderr, "train: rank {}: {}\n", mpi.world().rank(), error.what());
    mpi.world().abort(error.what());
    mpi.abort(1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view given = argc > 1 ? argv[1] : "2";
  try {
    if (given == "mpi") {
      train_under_mpi();
    } else {
      comm::run_local_ranks(std::atoi(given.data()), train);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "train: {}\n", error.what());
    return 1;
  }
  return 0;
}
