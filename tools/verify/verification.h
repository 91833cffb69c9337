// Computes what a folder of reference results holds, on any number of ranks, and says how far from
// it the results are. Not here: reading the folder (expected_results.h), printing
// (tools/commands/verify.cpp).
#pragma once

#include <optional>

#include "comm/fsdp/options.h"
#include "tools/launch/launch.h"
#include "tools/verify/difference_report.h"
#include "tools/verify/expected_results.h"

namespace fsdp::tools {

struct VerificationOptions {
  // How to shard, and with a hybrid strategy the ranks of a shard group; none: as the folder says.
  std::optional<comm::Strategy> strategy;
  int shard_size = 0;
  // Whether a run in f64 may excuse errors of f32: see verify_training.cpp.
  bool arbitrate = true;
};

// The same report on every rank. Throws AgreedError when a tensor of the folder is missing or of
// another shape. Collective.
Report verify(RankContext& rank, const ExpectedResults& expected,
              const VerificationOptions& options);

}  // namespace fsdp::tools
