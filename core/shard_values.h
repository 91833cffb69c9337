// Values in the arguments of flat buffers' kernels that other code names too. They stand apart from
// the arguments (core/shard_args.h), so that a new kernel does not rebuild the code that names
// them.
#pragma once

#include <cstdint>

namespace fsdp {

// One run of consecutive elements of a flat shard that belongs to one parameter.
struct ShardSegment {
  int64_t begin = 0;  // within the shard, elements
  int64_t end = 0;
  bool decay = false;     // weight decay applies
  int32_t parameter = 0;  // index into step_counts
  int64_t first = 0;      // element of the parameter that is at `begin`
};

// Elements [begin, end) of a flat shard, which are `first` and on of the parameter of that name.
struct ParameterRun {
  int64_t begin = 0;
  int64_t end = 0;
  uint64_t name_hash = 0;
  int64_t first = 0;
};

constexpr int64_t kNormBlock = 1024;  // elements that are summed together in a norm

// Why a step changes nothing.
enum StepSkip : int32_t { kNotSkipped = 0, kNotFinite = 1, kSpike = 2 };

// The loss scale after one step. Clean step: scale *= growth after every `interval` of them in a
// row (unless that is infinite). Overflow: when overflows / steps since the last change >=
// tolerance, scale = max(scale * backoff, floor); a scale <= minimum is taken back and sets
// `aborted`. torch.amp.GradScaler has tolerance 0, no floor and no minimum; the rest is fairseq's
// optim/dynamic_loss_scaler.py.
struct LossScaleRule {
  double growth = 2;
  double backoff = 0.5;
  int64_t interval = 2000;
  double tolerance = 0;
  double floor = 0;
  double minimum = 0;
};

}  // namespace fsdp
