// Embedding lookup and its scatter-add gradient.
#include "core/ops/embedding.h"

#include "core/ops/check.h"

namespace fsdp::ops {

Tensor embedding(const Tensor& tokens, Parameter& table, Parameter* positions) {
  FSDP_CHECK(tokens.shape().rank() == 2, "[embedding] tokens: expected (B, T), got {}",
             tokens.shape().str());
  check_dtype("embedding", "tokens", tokens.dtype(), DType::kI32);
  const int64_t length = tokens.shape()[1];
  const int64_t channels = table.shape()[1];
  if (positions) {
    FSDP_CHECK(positions->shape()[1] == channels && positions->shape()[0] >= length,
               "[embedding] {}: expected at least ({}, {}), got {}", positions->name(), length,
               channels, positions->shape().str());
    check_dtype("embedding", positions->name(), positions->value().dtype(), table.value().dtype());
  }
  Backend& backend = tokens.backend();
  Stream& stream = backend.compute_stream();
  Tensor y = Tensor::empty(backend, Shape{tokens.shape()[0], length, channels},
                           table.value().dtype());
  backend.embedding_forward(stream, tokens, table.value(),
                            positions ? &positions->value() : nullptr, 0, y);
  const bool train_positions = positions && positions->recording();
  if (!table.recording() && !train_positions) return y;
  if (table.recording()) table.add_use();
  if (train_positions) positions->add_use();
  table.tape()->record(
      "embedding", {}, {&y},
      [tokens, &table, positions](std::vector<Tensor>& gradients) {
        Backend& backend = tokens.backend();
        Stream& stream = backend.compute_stream();
        if (table.trainable()) {
          GradientTarget target = table.begin_gradient();
          backend.embedding_backward(stream, tokens, gradients[0], target.tensor,
                                     target.accumulate);
          table.end_gradient();
        }
        if (positions && positions->trainable()) {
          GradientTarget target = positions->begin_gradient();
          backend.position_backward(stream, gradients[0], target.tensor, target.accumulate);
          positions->end_gradient();
        }
        return std::vector<Tensor>{};
      });
  return y;
}

}  // namespace fsdp::ops
