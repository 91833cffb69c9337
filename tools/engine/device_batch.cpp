// What a model reads of a batch, made on the host.
#include "tools/engine/device_batch.h"

#include <algorithm>

#include "models/key_bias.h"
#include "models/token_padding.h"

namespace fsdp {
namespace {

// What each position predicts, without padding.
std::vector<int32_t> targets_of(const Batch& batch, const models::ModelConfig& model,
                                const std::vector<int32_t>& labels, int64_t rows) {
  if (!batch.labels_are_targets) {
    return models::target_labels(model, labels, rows, batch.length);
  }
  models::ModelConfig as_they_are = model;
  as_they_are.shifted_labels = false;
  return models::target_labels(as_they_are, labels, rows, batch.length);
}

}  // namespace

// [Note: a rank without rows]
// It computes one row of zeros whose labels are all ignored: its loss and gradients are exactly
// zero and it takes part in every collective, so no schedule needs a special case.
DeviceBatch upload(const Batch& batch, const models::ModelConfig& model, int64_t max_length,
                   Backend& backend, DType compute) {
  FSDP_CHECK(batch.length > 0 && batch.length <= max_length,
             "[batch] length: expected within [1, {}], got {}", max_length, batch.length);
  const int64_t rows = std::max<int64_t>(batch.rows, 1);
  std::vector<int32_t> tokens = batch.tokens, labels = batch.labels;
  std::vector<int64_t> samples = batch.samples;
  const size_t elements = static_cast<size_t>(rows * batch.length);
  if (batch.rows == 0) {
    tokens.assign(elements, 0);
    samples.assign(1, 0);
  }
  if (labels.empty() || batch.rows == 0) labels.assign(elements, kIgnoreIndex);
  if (samples.empty()) samples.assign(static_cast<size_t>(rows), 0);
  for (const int32_t token : tokens) {
    FSDP_CHECK(token >= 0 && token < model.vocabulary,
               "[batch] token: expected within the vocabulary of {}, got {}", model.vocabulary,
               token);
  }
  std::vector<int32_t> targets = targets_of(batch, model, labels, rows);
  Tensor key_bias, positions;
  const std::vector<int32_t> mask =
      models::padding_mask(model, tokens, batch.rows > 0 ? batch.mask : std::vector<int32_t>());
  models::ignore_leading_padding(model, mask, batch.length, targets);
  if (!mask.empty()) {
    const DType wide = accumulation_dtype(compute);
    key_bias = models::make_key_bias(model, backend, wide, mask, rows);
    if (model.position_offset > 0) {  // [Note: fairseq's padding]
      positions = Tensor::from_host(backend, Shape{rows, batch.length},
                                    models::counted_positions(model, mask, batch.length));
    }
  }
  return {Tensor::from_host(backend, Shape{rows, batch.length}, tokens),
          Tensor::from_host(backend, Shape{rows * batch.length}, targets),
          Tensor::from_host(backend, Shape{rows}, samples), key_bias, positions};
}

ForwardContext DeviceBatch::context(DropoutKey key, bool training) const {
  return {.training = training,
          .dropout = key,
          .samples = &samples,
          .key_bias = key_bias.defined() ? &key_bias : nullptr,
          .positions = positions.defined() ? &positions : nullptr};
}

int64_t label_tokens(const Batch& batch, const models::ModelConfig& model) {
  std::vector<int32_t> targets = targets_of(batch, model, batch.labels, batch.rows);
  models::ignore_leading_padding(model, models::padding_mask(model, batch.tokens, batch.mask),
                                 batch.length, targets);
  return std::count_if(targets.begin(), targets.end(),
                       [](int32_t target) { return target != kIgnoreIndex; });
}

}  // namespace fsdp
