// Embedding lookup and its scatter-add gradient.
#include "core/ops/embedding.h"

#include "core/ops/check.h"

namespace fsdp::ops {
namespace {

Tensor scaled(const Tensor& x, double scale) {
  Tensor y = Tensor::empty(x.backend(), x.shape(), x.dtype());
  Stream& stream = x.backend().compute_stream();
  x.backend().copy(stream, y.data(), x.data(), x.bytes());
  x.backend().divide(stream, y, 1 / scale);
  return y;
}

// y (B, T, C) += positions[first + t]: what is scaled is rounded before, as in fairseq.
void add_positions(const Tensor& positions, int64_t first, Tensor& y) {
  Backend& backend = y.backend();
  const int64_t rows = y.shape()[0], length = y.shape()[1];
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < rows * length; ++i)
    ids.push_back(static_cast<int32_t>(first + i % length));
  const Tensor at = Tensor::from_host(backend, Shape{rows, length}, ids);
  Tensor added = Tensor::empty(backend, y.shape(), y.dtype());
  backend.embedding_forward(backend.compute_stream(), at, positions, nullptr, 0, added);
  backend.add(backend.compute_stream(), y, added, y);
}

void token_gradient(const Tensor& tokens, Parameter& table, double scale, const Tensor& dy) {
  Backend& backend = tokens.backend();
  GradientTarget target = table.begin_gradient();
  backend.embedding_backward(backend.compute_stream(), tokens, scale == 1 ? dy : scaled(dy, scale),
                             target.tensor, target.accumulate);
  table.end_gradient();
}

void position_gradient(Parameter& positions, int64_t first, const Tensor& dy) {
  Backend& backend = dy.backend();
  Stream& stream = backend.compute_stream();
  GradientTarget target = positions.begin_gradient();
  const int64_t rows = positions.shape()[0], channels = positions.shape()[1];
  if (first > 0 && !target.accumulate) {
    const Tensor before = target.tensor.slice(0, Shape{first, channels});
    backend.fill_zero(stream, before.data(), before.bytes());
  }
  Tensor used = target.tensor.slice(first * channels, Shape{rows - first, channels});
  backend.position_backward(stream, dy, used, target.accumulate);
  positions.end_gradient();
}

}  // namespace

Tensor embedding(const Tensor& tokens, Parameter& table, Parameter* positions,
                 const EmbeddingOptions& options) {
  FSDP_CHECK(tokens.shape().rank() == 2, "[embedding] tokens: expected (B, T), got {}",
             tokens.shape().str());
  check_dtype("embedding", "tokens", tokens.dtype(), DType::kI32);
  const int64_t length = tokens.shape()[1];
  const int64_t channels = table.shape()[1];
  if (positions) {
    const int64_t least = options.first_position + length;
    FSDP_CHECK(positions->shape()[1] == channels && positions->shape()[0] >= least,
               "[embedding] {}: expected at least ({}, {}), got {}", positions->name(), least,
               channels, positions->shape().str());
    check_dtype("embedding", positions->name(), positions->value().dtype(), table.value().dtype());
  }
  Backend& backend = tokens.backend();
  Stream& stream = backend.compute_stream();
  Tensor y = Tensor::empty(backend, Shape{tokens.shape()[0], length, channels},
                           table.value().dtype());
  const bool together = positions && options.scale == 1;
  backend.embedding_forward(stream, tokens, table.value(), together ? &positions->value() : nullptr,
                            options.first_position, y);
  backend.divide(stream, y, 1 / options.scale);
  if (positions && !together) add_positions(positions->value(), options.first_position, y);
  const bool train_positions = positions && positions->recording();
  if (!table.recording() && !train_positions) return y;
  if (table.recording()) table.add_use();
  if (train_positions) positions->add_use();
  table.tape()->record("embedding", {}, {&y},
                       [tokens, &table, positions, options](std::vector<Tensor>& gradients) {
                         const Tensor& dy = gradients[0];
                         if (table.trainable()) token_gradient(tokens, table, options.scale, dy);
                         if (positions && positions->trainable()) {
                           position_gradient(*positions, options.first_position, dy);
                         }
                         return std::vector<Tensor>{};
                       });
  return y;
}

}  // namespace fsdp::ops
