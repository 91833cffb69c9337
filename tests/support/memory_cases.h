// Runs whose memory is predicted and counted: options crossed pair by pair, on a backend of choice.
// Not here: which of them go together on a GPU (tests/cuda_emulator/ranks).
#pragma once

#include <array>
#include <string>
#include <vector>

#include "tests/support/pairwise.h"
#include "tools/predict/meta_run.h"
#include "tools/train/placed_session.h"

namespace fsdp::test {

struct MemoryCase {
  tools::PlacedOptions options;
  int ranks = 1;
  bool evaluates = false;
  bool from_first_rank = false;
  tools::SyntheticRows kind;

  // With fixed_order: of a batch of so many rows; some ranks are without a pass in the last
  // micro-step.
  int64_t rows_per_pass(int64_t rows) const;
};

// Of a CPU every category but staging, which is the transport's own; of a GPU not the workspace of
// its libraries either.
std::string memory_text(const MemoryUsage& usage, bool of_gpu = false);
struct MemoryOfRank {
  std::string text;
  size_t workspace = 0;  // of a GPU: the run itself may take less than was predicted
};
MemoryOfRank predicted_memory(const MemoryCase& run, int rank);
std::vector<MemoryOfRank> counted_memory(const MemoryCase& run);  // by rank
void check_memory(const MemoryCase& run);

enum MemoryFactor {
  kStrategy,
  kRecompute,
  kAccumulation,
  kDType,
  kWrap,
  kRanks,
  kFamily,
  kHead,
  kTrained,
  kEvaluation,
  kOffload,
  kMore,
  kMemoryFactors
};
using MemoryLevels = std::array<int, kMemoryFactors>;
enum MemoryMore {
  kPlain,
  kReleaseArena,
  kFixedOrder,
  kOneInFlight,
  kOneStream,
  kSgd,
  kPost,
  kFirstRank,
  kMasked,
  kNarrow,
  kUnits,
  kInnerGroup,
  kKept,
  kThreeInFlight,
  kInBackward,
  kDocuments
};
constexpr MemoryLevels kMemorySizes = {6, 5, 4, 4, 5, 4, 8, 2, 3, 2, 4, 16};

// Whether these levels go together; -1: not chosen yet.
bool go_together(const MemoryLevels& levels);
MemoryCase memory_case(const MemoryLevels& levels);

}  // namespace fsdp::test
