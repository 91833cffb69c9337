// Times how a sharded model gets its initial values: every rank draws those of its shards by
// (seed, parameter name, element), so nobody ever holds the whole model, and the values are the
// same on any number of ranks. Without optimizer and gradients. Not here: printing
// (tools/commands/bench_init.cpp), the draw itself (models/weights.h).
#pragma once

#include "tools/engine/session.h"
#include "tools/launch/launch.h"

namespace fsdp::tools {

struct InitBenchOptions {
  models::ModelConfig model;
  comm::Strategy strategy = comm::Strategy::kFullShard;
  DType dtype = DType::kF32;  // of the masters and of what is gathered
  uint64_t seed = 0;
};

struct InitBench {
  int64_t parameters = 0;
  double set_up_s = 0;    // units, shards and their memory; on the slowest rank
  double values_s = 0;    // on the slowest rank
  size_t peak_bytes = 0;  // that this rank's backend took
  uint64_t hash = 0;      // of all values: that of a checkpoint of them
};
// Collective.
InitBench bench_init(const InitBenchOptions& options, RankContext& rank);

}  // namespace fsdp::tools
