// Embedding lookup and its scatter-add gradient.
#include "core/ops/embedding.h"

#include <optional>

#include "core/layer_args.h"
#include "core/ops/check.h"
#include "core/shard_args.h"

namespace fsdp::ops {
namespace {

Tensor scaled(const Tensor& x, double scale) {
  Tensor y = Tensor::empty(x.backend(), x.shape(), x.dtype());
  Stream& stream = x.backend().compute_stream();
  x.backend().copy(stream, y.data(), x.data(), x.bytes());
  x.backend().run(stream, DivideArgs{y, 1 / scale});
  return y;
}

Tensor rows(const Tensor& table, int64_t first, int64_t count) {
  const int64_t channels = table.shape()[1];
  return table.slice(first * channels, Shape{count, channels});
}

Tensor rows_from(const Tensor& table, int64_t first) {
  return rows(table, first, table.shape()[0] - first);
}

Tensor lookup(const Tensor& tokens, const Tensor& table, const Tensor* positions = nullptr) {
  Backend& backend = tokens.backend();
  Tensor y = Tensor::empty(backend, Shape{tokens.shape()[0], tokens.shape()[1], table.shape()[1]},
                           table.dtype());
  backend.run(backend.compute_stream(), EmbeddingForwardArgs{tokens, table, positions, 0, y});
  return y;
}

// 0, 1, 2, ... in every row of `tokens`.
Tensor ascending(const Tensor& tokens) {
  std::vector<int32_t> ids(static_cast<size_t>(tokens.numel()));
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int32_t>(i % static_cast<size_t>(tokens.shape()[1]));
  }
  return Tensor::from_host(tokens.backend(), tokens.shape(), ids);
}

void check_positions(const Tensor& tokens, const Parameter& table, const Parameter& positions,
                     const EmbeddingOptions& options) {
  const Tensor* ids = options.position_ids;
  const int64_t least = options.first_position + (ids ? 1 : tokens.shape()[1]);
  const int64_t channels = table.shape()[1];
  FSDP_CHECK(positions.shape()[1] == channels && positions.shape()[0] >= least,
             "[embedding] {}: expected at least ({}, {}), got {}", positions.name(), least,
             channels, positions.shape().str());
  check_dtype("embedding", positions.name(), positions.value().dtype(), table.value().dtype());
  if (!ids) return;
  check_shape("embedding", "position_ids", ids->shape(), tokens.shape());
  check_dtype("embedding", "position_ids", ids->dtype(), DType::kI32);
}

// Rows that an operation on the gradient is to leave as they are.
class KeptRows {
 public:
  KeptRows(const GradientTarget& target, int64_t first, int64_t count)
      : rows_(rows(target.tensor, first, count)),
        before_(Tensor::empty(rows_.backend(), rows_.shape(), rows_.dtype())) {
    Backend& backend = rows_.backend();
    Stream& stream = backend.compute_stream();
    if (target.accumulate) {
      backend.copy(stream, before_.data(), rows_.data(), rows_.bytes());
    } else {
      backend.fill_zero(stream, before_.data(), before_.bytes());
    }
  }
  void put_back() {
    Backend& backend = rows_.backend();
    backend.copy(backend.compute_stream(), rows_.data(), before_.data(), rows_.bytes());
  }

 private:
  Tensor rows_, before_;
};

void token_gradient(const Tensor& tokens, Parameter& table, double scale, int64_t padding_row,
                    const Tensor& dy) {
  Backend& backend = tokens.backend();
  GradientTarget target = table.begin_gradient();
  std::optional<KeptRows> padding;  // what it had from others, such as a tied head
  if (padding_row >= 0) padding.emplace(target, padding_row, 1);
  backend.run(backend.compute_stream(),
              EmbeddingBackwardArgs{tokens, scale == 1 ? dy : scaled(dy, scale), target.tensor,
                                    target.accumulate});
  if (padding) padding->put_back();
  table.end_gradient();
}

// `ids`: undefined where the positions ascend from `first`.
void position_gradient(Parameter& positions, int64_t first, const Tensor& ids, const Tensor& dy) {
  Backend& backend = dy.backend();
  Stream& stream = backend.compute_stream();
  GradientTarget target = positions.begin_gradient();
  if (ids.defined()) {
    std::optional<KeptRows> before;
    if (first > 0) before.emplace(target, 0, first);
    backend.run(stream, EmbeddingBackwardArgs{ids, dy, target.tensor, target.accumulate});
    if (before) before->put_back();
  } else {
    if (first > 0 && !target.accumulate) {
      const Tensor before = rows(target.tensor, 0, first);
      backend.fill_zero(stream, before.data(), before.bytes());
    }
    Tensor used = rows_from(target.tensor, first);
    backend.run(stream, PositionBackwardArgs{dy, used, target.accumulate});
  }
  positions.end_gradient();
}

}  // namespace

Tensor embedding(const Tensor& tokens, Parameter& table, Parameter* positions,
                 const EmbeddingOptions& options) {
  FSDP_CHECK(tokens.shape().rank() == 2, "[embedding] tokens: expected (B, T), got {}",
             tokens.shape().str());
  check_dtype("embedding", "tokens", tokens.dtype(), DType::kI32);
  FSDP_CHECK(options.padding_row < table.shape()[0],
             "[embedding] padding_row: expected below {} rows, got {}", table.shape()[0],
             options.padding_row);
  if (positions) check_positions(tokens, table, *positions, options);
  const Tensor used = positions ? rows_from(positions->value(), options.first_position) : Tensor();
  const bool together = positions && options.scale == 1 && !options.position_ids;
  Tensor y = lookup(tokens, table.value(), together ? &used : nullptr);
  Backend& backend = tokens.backend();
  if (options.scale != 1) backend.run(backend.compute_stream(), DivideArgs{y, 1 / options.scale});
  if (positions && !together) {  // what is scaled is rounded before, as in fairseq
    const Tensor at = options.position_ids ? lookup(*options.position_ids, positions->value())
                                           : lookup(ascending(tokens), used);
    backend.run(backend.compute_stream(), AddArgs{y, at, y});
  }
  const bool train_positions = positions && positions->recording();
  if (!table.recording() && !train_positions) return y;
  if (table.recording()) table.add_use();
  if (train_positions) positions->add_use();
  table.tape()->record("embedding", {}, {&y},
                       [tokens, &table, positions, scale = options.scale,
                        padding_row = options.padding_row, first = options.first_position,
                        ids = options.position_ids ? *options.position_ids
                                                   : Tensor()](std::vector<Tensor>& gradients) {
                         const Tensor& dy = gradients[0];
                         if (table.trainable())
                           token_gradient(tokens, table, scale, padding_row, dy);
                         if (positions && positions->trainable())
                           position_gradient(*positions, first, ids, dy);
                         return std::vector<Tensor>{};
                       });
  return y;
}

}  // namespace fsdp::ops
