// The knobs of fully sharded data parallel training, and the groups it communicates in.
#pragma once

#include "comm/communicator.h"
#include "core/dtype.h"

namespace fsdp::comm {

enum class Strategy : uint8_t {
  kFullShard,  // parameters, gradients and optimizer state sharded; gathered per unit (ZeRO-3)
  kNoShard,    // everything replicated, gradients all-reduced per unit (DDP)
};

// When the gather of the unit that backward needs next is issued.
enum class BackwardPrefetch : uint8_t {
  kPre,   // before the backward of the current unit: overlaps, two units unsharded
  kPost,  // after it, before its reduce: less memory, overlaps the reduce only
  kNone,  // when it is needed
};

struct FsdpOptions {
  Strategy strategy = Strategy::kFullShard;
  DType param_dtype = DType::kF32;   // unsharded parameters, compute and gathers
  DType reduce_dtype = DType::kF32;  // unsharded gradients and reduces
  bool forward_prefetch = true;      // issue the gather of unit i+1 before the forward of unit i
  BackwardPrefetch backward_prefetch = BackwardPrefetch::kPre;
};

// Two communicators over the same ranks, so that neither a gather nor a reduce waits behind the
// other. One rank is allowed: everything is then resident and nothing is communicated.
struct FsdpGroups {
  Communicator& gather;
  Communicator& reduce;
};

}  // namespace fsdp::comm
