// A rank's rows of a batch as a model reads them, on a backend.
#pragma once

#include "models/causal_lm.h"
#include "tools/engine/batch.h"

namespace fsdp {

struct DeviceBatch {
  Tensor tokens;     // (B, T), i32
  Tensor targets;    // (B * T), i32: what each position predicts
  Tensor samples;    // (B), i64
  Tensor key_bias;   // of the mask; undefined without one
  Tensor positions;  // (B, T), i32; undefined: 0, 1, ... in every row

  // The context of a forward of these rows, which must outlive it.
  ForwardContext context(DropoutKey key, bool training) const;
};

// Error when the length is not within [1, max_length] or a token is not in the vocabulary. Values
// that are not tokens or targets are in the accumulation dtype of `compute`.
DeviceBatch upload(const Batch& batch, const models::ModelConfig& model, int64_t max_length,
                   Backend& backend, DType compute);

}  // namespace fsdp
