// Rotary positions: gradients against finite differences, alone and in front of attention, tables
// by token, checks. Values: tests/kernels/rope_test.cpp.
#include <cmath>

#include <doctest/doctest.h>

#include "core/layer_args.h"
#include "core/ops/attention.h"
#include "core/ops/elementwise.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/gradient_check.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"

namespace fsdp {
namespace {

using test::error_of;
using Tensors = std::vector<Tensor>;

// Heads side by side, `offset` elements into each row.
HeadView heads_of(const Tensor& rows, int64_t heads, int64_t width, int64_t offset = 0) {
  return {
      .tensor = &rows, .heads = heads, .head_dim = width, .offset = offset, .head_stride = width};
}

AttentionArgs attention_of(const HeadView& q, const HeadView& k, const HeadView& v) {
  return {.q = q, .k = k, .v = v, .scale = 0.6, .causal = true};
}

ops::RopeTables tables(Backend& backend, int64_t positions, int64_t half) {
  std::vector<double> cos, sin;
  for (int64_t t = 0; t < positions; ++t) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(t) * std::pow(0.3, static_cast<double>(i));
      cos.push_back(std::cos(angle));
      sin.push_back(std::sin(angle));
    }
  }
  return {Tensor::from_host(backend, Shape{positions, half}, cos),
          Tensor::from_host(backend, Shape{positions, half}, sin)};
}

// rope works in place: the input of a check must stay as it is.
Tensor copy_of(const Tensor& x) {
  return ops::add(x, Tensor::zeros(x.backend(), x.shape(), x.dtype()));
}

TEST_CASE("rope: gradients against finite differences, alone and in front of attention") {
  cpu::CpuBackend backend;
  const ops::RopeTables t = tables(backend, 5, 3), partial = tables(backend, 9, 1);
  test::GradientCheck check(backend);
  check.input("q", {2, 5, 4 * 6});
  check.input("kv", {2, 5, 2 * 6});
  check.run([&](const Tensors& in) {
    const HeadView view = heads_of(in[0], 4, 6);
    return Tensors{ops::rope(copy_of(in[0]), view, t), ops::rope(copy_of(in[0]), view, partial),
                   copy_of(in[1])};
  });
  check.run([&](const Tensors& in) {
    const Tensor q = ops::rope(copy_of(in[0]), heads_of(in[0], 4, 6), t);
    const Tensor k = ops::rope(copy_of(in[1]), heads_of(in[1], 2, 6), t);
    return Tensors{
        ops::attention(attention_of(heads_of(q, 4, 6), heads_of(k, 2, 6), heads_of(in[1], 2, 6)))};
  });
}

TEST_CASE("rope: tables by token are the rows at their positions; gradients against differences") {
  cpu::CpuBackend backend;
  const Tensor angles = test::random_tensor(backend, Shape{9, 2}, DType::kF64, 7);
  const Tensor others = test::random_tensor(backend, Shape{9, 2}, DType::kF64, 8);
  const ops::RopeTables tables = {angles, others};
  const HeadView view = {.heads = 2, .head_dim = 5, .offset = 1, .head_stride = 5};
  const std::vector<int32_t> ids = {0, 0, 0, 1, 2, 3, 4, 8};
  const Tensor positions = Tensor::from_host(backend, Shape{2, 4}, ids);
  const ops::RopeTables by_token = ops::rope_tables_at(tables, positions);
  const Shape shape = {2, 4, 12};
  const std::vector<double> values = test::random_values(shape.numel(), 1);
  const std::vector<double> got =
      ops::rope(test::make_tensor(backend, shape, DType::kF64, values), view, by_token)
          .to_doubles();
  for (size_t token = 0; token < ids.size(); ++token) {  // alone, with tables that begin there
    const std::vector<double> one(values.begin() + static_cast<long>(12 * token),
                                  values.begin() + static_cast<long>(12 * token + 12));
    const ops::RopeTables row = {angles.slice(2 * ids[token], Shape{1, 2}),
                                 others.slice(2 * ids[token], Shape{1, 2})};
    const std::vector<double> expected =
        ops::rope(test::make_tensor(backend, Shape{1, 1, 12}, DType::kF64, one), view, row)
            .to_doubles();
    CHECK(
        std::equal(expected.begin(), expected.end(), got.begin() + static_cast<long>(12 * token)));
  }
  test::GradientCheck check(backend);
  check.input("x", shape);
  check.run([&](const Tensors& in) { return Tensors{ops::rope(copy_of(in[0]), view, by_token)}; });
  CHECK(error_of([&] {
          ops::rope(test::random_tensor(backend, Shape{2, 3, 12}, DType::kF64, 1), view, by_token);
        }) == "[rope] tables by token: expected (2, 3, 2), got (2, 4, 2)");
}

TEST_CASE("rope: twice on one packed tensor, for q and for k") {
  cpu::CpuBackend backend;
  const ops::RopeTables t = tables(backend, 5, 2);
  test::GradientCheck check(backend);
  check.input("qkv", {2, 5, (4 + 2 + 2) * 4});
  check.run([&](const Tensors& in) {
    Tensor qkv = copy_of(in[0]);
    qkv = ops::rope(qkv, heads_of(qkv, 4, 4), t);
    qkv = ops::rope(qkv, heads_of(qkv, 2, 4, 4 * 4), t);
    return Tensors{ops::attention(
        attention_of(heads_of(qkv, 4, 4), heads_of(qkv, 2, 4, 4 * 4), heads_of(qkv, 2, 4, 6 * 4)))};
  });
}

TEST_CASE("rope: a gradient that somebody else holds is rotated in a copy") {
  cpu::CpuBackend backend;
  Tape tape(backend);
  const ops::RopeTables t = tables(backend, 3, 1);
  const test::Leaf x(tape, test::random_tensor(backend, Shape{1, 3, 2}, DType::kF64, 1));
  const test::Leaf other(tape, test::random_tensor(backend, Shape{1, 3, 2}, DType::kF64, 2));
  const Tensor rotated =
      ops::rope(copy_of(x.value()), {.heads = 1, .head_dim = 2, .head_stride = 2}, t);
  const Tensor dy = test::random_tensor(backend, Shape{1, 3, 2}, DType::kF64, 3);
  tape.backward(ops::add(rotated, other.value()), dy);  // hands both sides the same gradient
  CHECK(other.gradient().to_doubles() == dy.to_doubles());
  CHECK(x.gradient().to_doubles() != dy.to_doubles());
}

TEST_CASE("rope: too long sequences and too wide tables are named") {
  cpu::CpuBackend backend;
  const Tensor x = Tensor::zeros(backend, Shape{2, 5, 6}, DType::kF32);
  const HeadView view = heads_of(x, 2, 3);
  CHECK(error_of([&] { ops::rope(x, view, tables(backend, 4, 1)); }) ==
        "[rope] positions: expected at most 4, got 5");
  CHECK(error_of([&] { ops::rope(x, view, tables(backend, 5, 2)); }) ==
        "[rope] rotary_dim: expected at most 3, got 4");
}

}  // namespace
}  // namespace fsdp
