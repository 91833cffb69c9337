// Embedding: gradients against finite differences, tokens that repeat, a table used twice, checks.
// Values in every dtype: tests/kernels/embedding_test.cpp.
#include "core/ops/embedding.h"

#include <doctest/doctest.h>

#include "core/ops/elementwise.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/gradient_check.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"

namespace fsdp {
namespace {

using test::error_of;
using Tensors = std::vector<Tensor>;
using Doubles = std::vector<double>;

Tensor tokens_of(Backend& backend, Shape shape, const std::vector<int32_t>& values) {
  return Tensor::from_host(backend, shape, values);
}

TEST_CASE("embedding: gradients of both tables, with tokens that repeat and rows never used") {
  cpu::CpuBackend backend;
  const Tensor tokens = tokens_of(backend, Shape{2, 4}, {3, 0, 3, 3, 6, 3, 0, 5});
  test::GradientCheck check(backend);
  Parameter& table = check.parameter("table", Shape{7, 5});
  Parameter& positions = check.parameter("positions", Shape{6, 5});
  const auto once = [&](const Tensors&) {
    return Tensors{ops::embedding(tokens, table, &positions)};
  };
  check.run(once, 12);
  check.run([&](const Tensors&) {  // contributions add up
    return Tensors{ops::add(ops::embedding(tokens, table, &positions),
                            ops::embedding(tokens, table, &positions))};
  });
  positions.set_trainable(false);
  check.run(once);
  table.set_trainable(false);
  positions.set_trainable(true);
  check.run(once);
}

TEST_CASE("embedding: a scaled table, positions from a later row on") {
  cpu::CpuBackend backend;
  const Tensor tokens = tokens_of(backend, Shape{2, 3}, {1, 0, 1, 3, 3, 2});
  for (const ops::EmbeddingOptions& options :
       {ops::EmbeddingOptions{.scale = 3}, ops::EmbeddingOptions{.first_position = 2},
        ops::EmbeddingOptions{.scale = 0.5, .first_position = 1}}) {
    test::GradientCheck check(backend);
    Parameter& table = check.parameter("table", Shape{4, 5});
    Parameter& positions = check.parameter("positions", Shape{6, 5});
    const auto once = [&](const Tensors&) {
      return Tensors{ops::embedding(tokens, table, &positions, options)};
    };
    check.run(once, 12);
    check.run([&](const Tensors&) {  // contributions add up
      return Tensors{ops::add(once({})[0], once({})[0])};
    });
    const std::vector<double> y = once({})[0].to_doubles();
    const std::vector<double> rows = table.value().to_doubles();
    const std::vector<double> added = positions.value().to_doubles();
    const auto first = static_cast<size_t>(options.first_position);
    for (size_t i = 0; i < 5; ++i) {  // token 2 at position 2 of the second row
      CHECK(y[5 * 5 + i] ==
            doctest::Approx(options.scale * rows[2 * 5 + i] + added[(first + 2) * 5 + i]));
    }
  }
  Parameter table("table", Shape{4, 5}, {}, true), positions("positions", Shape{4, 5}, {}, true);
  table.set_value(test::random_tensor(backend, table.shape(), DType::kF32, 1));
  CHECK(error_of([&] { ops::embedding(tokens, table, &positions, {.first_position = 2}); }) ==
        "[embedding] positions: expected at least (5, 5), got (4, 5)");
}

TEST_CASE("embedding: positions by id, which may repeat, and their gradients") {
  cpu::CpuBackend backend;
  const Tensor tokens = tokens_of(backend, Shape{2, 4}, {3, 0, 3, 3, 6, 3, 0, 5});
  const std::vector<int32_t> ids = {0, 0, 0, 1, 2, 3, 4, 5};
  const Tensor position_ids = tokens_of(backend, Shape{2, 4}, ids);
  test::GradientCheck check(backend);
  Parameter& table = check.parameter("table", Shape{7, 5});
  Parameter& positions = check.parameter("positions", Shape{6, 5});
  check.run(
      [&](const Tensors&) {
        return Tensors{ops::embedding(tokens, table, &positions, {.position_ids = &position_ids})};
      },
      12);
  const std::vector<double> rows = table.value().to_doubles(), at = positions.value().to_doubles();
  const std::vector<double> y =
      ops::embedding(tokens, table, &positions, {.position_ids = &position_ids}).to_doubles();
  const std::vector<int32_t> words = tokens.to_host<int32_t>();
  for (size_t i = 0; i < y.size(); ++i) {
    const auto token = static_cast<size_t>(words[i / 5]), id = static_cast<size_t>(ids[i / 5]);
    CHECK(y[i] == rows[5 * token + i % 5] + at[5 * id + i % 5]);
  }
  const Tensor wrong = tokens_of(backend, Shape{1, 4}, {0, 0, 0, 0});
  CHECK(error_of([&] { ops::embedding(tokens, table, &positions, {.position_ids = &wrong}); }) ==
        "[embedding] position_ids: expected (2, 4), got (1, 4)");
}

TEST_CASE("embedding: rows before the first position can be looked up and have no gradient") {
  cpu::CpuBackend backend;
  Tape tape(backend);
  const Tensor tokens = tokens_of(backend, Shape{1, 4}, {1, 0, 1, 3});
  const Tensor ids = tokens_of(backend, Shape{1, 4}, {2, 1, 3, 1});
  Parameter table("table", Shape{4, 5}, {}, true), positions("positions", Shape{6, 5}, {}, true);
  for (Parameter* p : {&table, &positions}) {
    p->set_value(test::random_tensor(backend, p->shape(), DType::kF64, 7));
    p->set_tape(&tape);
  }
  const Tensor ones = test::make_tensor(backend, Shape{1, 4, 5}, DType::kF64, Doubles(20, 1.0));
  Doubles expected(30);
  for (const size_t row : {2, 3})
    std::fill_n(expected.begin() + 5 * static_cast<long>(row), 5, 1.0);
  for (int pass = 0; pass < 2; ++pass) {  // the second adds to what the first left
    const Tensor y =
        ops::embedding(tokens, table, &positions, {.first_position = 2, .position_ids = &ids});
    const Doubles got = y.to_doubles(), rows = table.value().to_doubles(),
                  at = positions.value().to_doubles();
    for (size_t i = 0; i < 5; ++i) CHECK(got[5 + i] == rows[i] + at[5 + i]);
    tape.backward(y, ones);
    CHECK(positions.gradient().to_doubles() == expected);
    for (double& value : expected) value *= 2;
  }
}

TEST_CASE("embedding: without positions") {
  cpu::CpuBackend backend;
  const Tensor tokens = tokens_of(backend, Shape{1, 3}, {1, 1, 0});
  test::GradientCheck check(backend);
  Parameter& table = check.parameter("table", Shape{2, 3});
  check.run([&](const Tensors&) { return Tensors{ops::embedding(tokens, table)}; }, 6);
}

TEST_CASE("embedding: unused rows have gradient zero, not what the memory held before") {
  cpu::CpuBackend backend;
  Tape tape(backend);
  Parameter table("table", Shape{100, 32}, {}, true);
  table.set_value(test::random_tensor(backend, table.shape(), DType::kF32, 1));
  table.set_tape(&tape);
  const Tensor ones =
      test::make_tensor(backend, Shape{1, 1, 32}, DType::kF32, std::vector<double>(32, 1.0));
  for (int32_t token = 0; token < 3; ++token) {  // the allocator hands the same memory out again
    tape.backward(ops::embedding(tokens_of(backend, Shape{1, 1}, {token}), table), ones);
    const std::vector<double> gradient = table.gradient().to_doubles();
    double sum = 0;
    for (const double g : gradient) sum += g;
    CHECK(sum == 32);
    CHECK(gradient[static_cast<size_t>(token) * 32] == 1);
    table.clear_gradient();
  }
}

TEST_CASE(
    "embedding: the padding row gets no gradient from lookups, and keeps what others gave it") {
  cpu::CpuBackend backend;
  const Tensor tokens = tokens_of(backend, Shape{2, 3}, {1, 2, 1, 0, 2, 1});
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Tape tape(backend);
    Parameter table("table", Shape{4, 2}, {}, true);
    table.set_value(test::random_tensor(backend, table.shape(), dtype, 1));
    table.set_tape(&tape);
    const Tensor dy = test::make_tensor(backend, Shape{2, 3, 2}, dtype,
                                        {1, 2, 3, 4, 5, 6,  //
                                         7, 8, 9, 1, 2, 3});
    const auto gradient = [&](const Tensor& y, const Tensor& of_y) {
      tape.backward(y, of_y);
      const std::vector<double> out = table.gradient().to_doubles();
      table.clear_gradient();
      return out;
    };
    CHECK(gradient(ops::embedding(tokens, table), dy) ==
          std::vector<double>{7, 8, 8, 11, 12, 5, 0, 0});
    CHECK(gradient(ops::embedding(tokens, table, nullptr, {.padding_row = 1}), dy) ==
          std::vector<double>{7, 8, 0, 0, 12, 5, 0, 0});
    // The same table used before and behind: backward goes from the last use to the first.
    for (const bool last : {false, true}) {
      const auto use = [&](bool padded) {
        return ops::embedding(tokens, table, nullptr, {.padding_row = padded ? 1 : -1});
      };
      const Tensor first = use(last);
      CHECK(gradient(ops::add(first, use(!last)), dy) ==
            std::vector<double>{14, 16, 8, 11, 24, 10, 0, 0});
    }
    CHECK(gradient(ops::embedding(tokens, table, nullptr, {.scale = 2, .padding_row = 3}), dy) ==
          std::vector<double>{14, 16, 16, 22, 24, 10, 0, 0});
  }
}

TEST_CASE("embedding: wrong shapes and dtypes are named") {
  cpu::CpuBackend backend;
  Parameter table("embedding.tokens.weight", Shape{5, 3}, {}, true);
  Parameter positions("embedding.positions.weight", Shape{2, 3}, {}, true);
  for (Parameter* p : {&table, &positions}) {
    p->set_value(Tensor::zeros(backend, p->shape(), DType::kF32));
  }
  CHECK(error_of([&] {
          ops::embedding(tokens_of(backend, Shape{3}, {0, 1, 2}), table);
        }) == "[embedding] tokens: expected (B, T), got (3)");
  const Tensor wide = Tensor::zeros(backend, Shape{1, 2}, DType::kI64);
  CHECK(error_of([&] { ops::embedding(wide, table); }) ==
        "[embedding] tokens: expected i32, got i64");
  CHECK(error_of([&] {
          ops::embedding(tokens_of(backend, Shape{1, 1}, {0}), table, nullptr, {.padding_row = 5});
        }) == "[embedding] padding_row: expected below 5 rows, got 5");
  const Tensor three = tokens_of(backend, Shape{1, 3}, {0, 1, 2});
  CHECK(error_of([&] { ops::embedding(three, table, &positions); }) ==
        "[embedding] embedding.positions.weight: expected at least (3, 3), got (2, 3)");
  positions.set_value(Tensor::zeros(backend, positions.shape(), DType::kBF16));
  const Tensor two = tokens_of(backend, Shape{1, 2}, {0, 1});
  CHECK(error_of([&] { ops::embedding(two, table, &positions); }) ==
        "[embedding] embedding.positions.weight: expected f32, got bf16");
}

}  // namespace
}  // namespace fsdp
