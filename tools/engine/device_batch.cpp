// Copies of a batch.
#include "tools/engine/device_batch.h"

#include <algorithm>

#include "core/layer_values.h"
#include "models/key_bias.h"

namespace fsdp {

// [Note: a rank without rows]
// It computes one row of zeros whose targets are all ignored: its loss and gradients are exactly
// zero and it takes part in every collective, so no schedule needs a special case.
DeviceBatch upload(const Batch& batch, const models::ModelConfig& model, int64_t max_length,
                   Backend& backend, DType compute) {
  FSDP_CHECK(batch.length > 0 && batch.length <= max_length,
             "[batch] length: expected within [1, {}], got {}", max_length, batch.length);
  for (const int32_t token : batch.tokens) {
    FSDP_CHECK(token >= 0 && token < model.vocabulary,
               "[batch] token: expected within the vocabulary of {}, got {}", model.vocabulary,
               token);
  }
  const int64_t rows = std::max<int64_t>(batch.rows, 1);
  const Shape shape = {rows, batch.length};
  Tensor key_bias, positions;
  if (!batch.mask.empty()) {
    key_bias = models::make_key_bias(model, backend, accumulation_dtype(compute), batch.mask, rows);
  }
  if (!batch.positions.empty()) positions = Tensor::from_host(backend, shape, batch.positions);
  // `otherwise`: every value of a batch that has none.
  const auto filled = [&](const auto& values, auto otherwise, const Shape& of) {
    return Tensor::from_host(
        backend, of,
        values.empty() ? std::vector(static_cast<size_t>(of.numel()), otherwise) : values);
  };
  return {filled(batch.tokens, int32_t{0}, shape),
          filled(batch.targets, kIgnoreIndex, Shape{rows * batch.length}),
          filled(batch.samples, int64_t{0}, Shape{rows}), key_bias, positions};
}

ForwardContext DeviceBatch::context(DropoutKey key, bool training) const {
  return {.training = training,
          .dropout = key,
          .samples = &samples,
          .key_bias = key_bias.defined() ? &key_bias : nullptr,
          .positions = positions.defined() ? &positions : nullptr};
}

}  // namespace fsdp
