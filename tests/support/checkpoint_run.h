// Sessions of tiny models that train a few steps, are kept in a checkpoint and go on from it, for
// the tests of tools/checkpoint. Every run sees the same global batches, whatever its number of
// ranks.
#pragma once

#include <mutex>

#include "comm/local_transport.h"
#include "models/weights.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_models.h"
#include "tools/checkpoint/owned_state.h"
#include "tools/checkpoint/read_checkpoint.h"
#include "tools/checkpoint/write_checkpoint.h"
#include "tools/train/placed_session.h"

namespace fsdp::test {

inline tools::PlacedOptions checkpoint_options() {
  tools::PlacedOptions options;
  options.model = tiny_gpt2();
  options.max_length = 6;
  options.seed = 5;
  return options;
}

// 1.39 GiB of masters and moments.
inline tools::PlacedOptions gpt2_124m() {
  tools::PlacedOptions options;
  options.model = models::preset("gpt2-124m");
  options.max_length = 32;
  options.clip_norm = 0;
  return options;
}

inline tools::PlacedOptions with_strategy(comm::Strategy strategy, int shard_size = 0) {
  tools::PlacedOptions options = checkpoint_options();
  options.fsdp.strategy = strategy;
  options.fsdp.shard_size = shard_size;
  return options;
}

struct CheckpointLayout {
  int ranks;
  tools::PlacedOptions options;
};

// Every strategy on 1, 2, 3, 4, 6 and 8 ranks.
inline std::vector<CheckpointLayout> layouts() {
  std::vector<CheckpointLayout> all;
  for (const int ranks : {1, 2, 3, 4, 6, 8}) {
    for (const comm::Strategy strategy :
         {comm::Strategy::kFullShard, comm::Strategy::kShardGradOp, comm::Strategy::kShardOptimizer,
          comm::Strategy::kNoShard}) {
      all.push_back({ranks, with_strategy(strategy)});
    }
    for (const int size : {2, 3}) {
      if (ranks % size != 0 || ranks == size) continue;
      all.push_back({ranks, with_strategy(comm::Strategy::kHybridShard, size)});
      all.push_back({ranks, with_strategy(comm::Strategy::kHybridShardZero2, size)});
    }
  }
  return all;
}

// This rank's rows of the global batch of `rows` rows.
inline Batch checkpoint_batch(const comm::Communicator& world, int64_t step, int64_t rows) {
  LabelledRows own = {.length = 6};
  for (int64_t row = world.rank(); row < rows; row += world.size()) {
    own.samples.push_back(step * rows + row);
    for (int64_t t = 0; t < 6; ++t) {
      own.tokens.push_back(static_cast<int32_t>((own.samples.back() * 7 + t * t) % 23));
    }
  }
  own.labels = own.tokens;
  return make_batch(std::move(own), {}, rows * 5);
}

struct RunState {
  std::vector<double> losses;
  tools::StateHash hash;
  bool operator==(const RunState&) const = default;
};

constexpr int64_t kCheckpointRows = 24;  // for up to 8 ranks with several micro-steps

// Steps [from, to), as the trainer's loop takes them.
inline RunState run_steps(Session& session, int64_t from, int64_t to) {
  RunState state;
  for (int64_t step = from; step < to; ++step) {
    Batch batch = checkpoint_batch(session.world(), step, kCheckpointRows);
    // One overflow, so that a loss scale moves.
    if (session.scales_loss() && step == 1) batch.gradient_factor = 1e30;
    state.losses.push_back(
        session.train_step(batch, 1e-2, static_cast<uint32_t>(step)).read().loss);
  }
  state.hash = tools::hash_state(session);
  return state;
}

// What is trained starts elsewhere with `other`: it must come from a checkpoint. What is frozen is
// the base.
inline void initialise_for_checkpoint(Session& session, bool other = false) {
  const auto base = models::from_scratch(3), wrong = models::from_scratch(99);
  session.initialise([&](const Parameter& parameter, int64_t first, Tensor& values) {
    (other && parameter.trainable() ? wrong : base)(parameter, first, values);
  });
}

// Trains `steps` from the beginning and writes a checkpoint; the manifest of rank 0.
inline tools::Manifest write_after(int ranks, const tools::PlacedOptions& options, int64_t steps,
                                   const std::filesystem::path& folder) {
  tools::Manifest manifest;
  comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
    Session session = place_session(world, options);
    initialise_for_checkpoint(session);
    run_steps(session, 0, steps);
    tools::Manifest facts;
    facts.progress.steps = steps;
    const tools::Manifest written = tools::write_checkpoint(session, folder, facts);
    if (world.rank() == 0) manifest = written;
  });
  return manifest;
}

// Goes on from a checkpoint until step `to`; what rank 0 sees.
inline RunState go_on(int ranks, const tools::PlacedOptions& options,
                      const std::filesystem::path& folder, int64_t to) {
  RunState state;
  comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
    Session session = place_session(world, options);
    initialise_for_checkpoint(session, true);
    tools::Checkpoint checkpoint(folder);
    tools::restore(session, checkpoint);
    const RunState mine = run_steps(session, checkpoint.manifest().step(), to);
    if (world.rank() == 0) state = mine;
  });
  return state;
}

// The same without a checkpoint in between.
inline RunState undisturbed(int ranks, const tools::PlacedOptions& options, int64_t to) {
  RunState state;
  comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
    Session session = place_session(world, options);
    initialise_for_checkpoint(session);
    const RunState mine = run_steps(session, 0, to);
    if (world.rank() == 0) state = mine;
  });
  return state;
}

}  // namespace fsdp::test
