// A rule of whole matrices for tests, in the manner of Muon (Jordan, 2024): momentum by element;
// then the whole matrix, scaled to Frobenius norm 1, takes one step of Newton and Schulz towards an
// orthogonal one, X = 1.5 X - 0.5 X X^T X, which is the direction. Made of kernels that are there.
#pragma once

#include "core/layer_args.h"
#include "core/optimizer_rules/list.h"
#include "core/shard_args.h"
#include "optim/matrix_rule.h"
#include "tests/support/tensors.h"

namespace fsdp::test {

class OrthogonalRule final : public optim::MatrixRule {
 public:
  static constexpr double kMomentum = 0.9;

  std::vector<std::string_view> state_names() const override { return {"momentum_buffer"}; }

  void update(optim::MatrixUpdate& matrix) override {
    const ShardUpdate& piece = matrix.piece;
    Backend& backend = piece.master.backend();
    Stream& stream = backend.compute_stream();
    const DType dtype = accumulation_dtype(piece.master.dtype());
    const Tensor minus_one = make_tensor(backend, {}, DType::kF64, {-1});
    const Tensor one = make_tensor(backend, {}, dtype, {1});
    Tensor direction;
    {
      Tensor momentum = Tensor::zeros(backend, piece.master.shape(), dtype);
      backend.run(stream,
                  UpdateArgs<rules::Sgd>{.shard = like(piece, momentum, piece.grad, piece.segments,
                                                       minus_one, piece.gradient_scale),
                                         .state = {&matrix.state[0]},
                                         .rule = {.momentum = kMomentum}});
      direction = orthogonal(piece, matrix.gather(momentum), minus_one);
    }
    ShardUpdate step = like(piece, piece.master, matrix.piece_of(direction), piece.segments,
                            piece.learning_rate, one);
    step.copy = piece.copy;
    step.weight_decay = piece.weight_decay;
    backend.run(stream, UpdateArgs<rules::Sgd>{.shard = step});
  }

 private:
  // The same step of other values, without decay.
  static ShardUpdate like(const ShardUpdate& of, Tensor& master, const Tensor& gradient,
                          const std::vector<ShardSegment>& segments, const Tensor& rate,
                          const Tensor& scale) {
    return {.master = master,
            .grad = gradient,
            .segments = segments,
            .step_counts = of.step_counts,
            .present = of.present,
            .learning_rate = rate,
            .gradient_scale = scale,
            .skip = of.skip,
            .weight_decay = 0,
            .draws = of.draws,
            .seed = of.seed,
            .update = of.update};
  }

  static Tensor orthogonal(const ShardUpdate& piece, const Tensor& whole, const Tensor& minus_one) {
    Backend& backend = whole.backend();
    Stream& stream = backend.compute_stream();
    Tensor x = Tensor::zeros(backend, whole.shape(), whole.dtype());
    const Tensor scale = to_norm_one(whole);
    const std::vector<ShardSegment> all = {
        {0, whole.numel(), false, piece.segments[0].parameter, 0}};
    backend.run(stream,
                UpdateArgs<rules::Sgd>{.shard = like(piece, x, whole, all, minus_one, scale)});
    const int64_t rows = x.shape()[0];
    Tensor square = Tensor::empty(backend, {rows, rows}, x.dtype());
    Tensor cube = Tensor::empty(backend, x.shape(), x.dtype());
    backend.run(stream, MatmulArgs{.a = x, .b = x, .c = square, .transpose_b = true});
    backend.run(stream, MatmulArgs{.a = square, .b = x, .c = cube});
    backend.run(stream, DivideArgs{cube, -2});
    backend.run(stream, DivideArgs{x, 2.0 / 3});
    backend.run(stream, AddArgs{x, cube, x});
    return x;
  }

  // (): 1 / norm. The clip coefficient does it, of a norm that is far above 1.
  static Tensor to_norm_one(const Tensor& whole) {
    constexpr double kFar = 1e6;
    Backend& backend = whole.backend();
    Stream& stream = backend.compute_stream();
    Tensor sum = Tensor::zeros(backend, {}, DType::kF64), norm = sum;
    norm = Tensor::zeros(backend, {}, DType::kF64);
    Tensor coefficient = Tensor::zeros(backend, {}, whole.dtype());
    Tensor skip = Tensor::zeros(backend, {}, DType::kI32);
    const std::vector<std::pair<int64_t, int64_t>> spans = {{0, whole.numel()}};
    backend.run(stream, PowerSumArgs{.x = whole, .spans = spans, .power = 2, .out = sum});
    backend.run(stream, DivideArgs{sum, 1 / (kFar * kFar)});
    backend.run(stream, ClipArgs{.power_sum = sum,
                                 .power = 2,
                                 .max_norm = 1,
                                 .norm = norm,
                                 .coefficient = coefficient,
                                 .skip = skip});
    backend.run(stream, DivideArgs{coefficient, 1 / kFar});
    return coefficient;
  }
};

}  // namespace fsdp::test
