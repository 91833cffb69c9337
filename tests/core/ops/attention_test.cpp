// Attention: every gradient against finite differences over layouts, grouped heads, windows,
// documents and lengths, packed against separate, checks. Values: tests/kernels/attention_test.cpp.
// Rotary positions: rope_test.cpp. Requirements: S3.2.
#include "core/ops/attention.h"

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "core/layer_args.h"
#include "core/ops/elementwise.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/gradient_check.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"

namespace fsdp {
namespace {

using test::error_of;
using Tensors = std::vector<Tensor>;

struct Case {
  int64_t batch = 2, queries = 5, keys = 5, heads = 2, kv_heads = 2, width = 3;
  bool causal = true;
  int64_t window = 0;

  std::string str() const {
    return fmt::format("B {} Tq {} Tk {} H {} KV {} D {} causal {} window {}", batch, queries, keys,
                       heads, kv_heads, width, causal, window);
  }
};

// Lengths around and beyond the tiles of the kernel, one head, shared heads, windows.
const std::vector<Case> kCases = {
    {},
    {.batch = 1, .queries = 1, .keys = 1, .heads = 1, .kv_heads = 1, .width = 1},
    {.heads = 4, .kv_heads = 2, .width = 5},
    {.heads = 3, .kv_heads = 1, .width = 4},
    {.causal = false},
    {.queries = 3, .keys = 7},
    {.queries = 2, .keys = 7, .causal = false},
    {.queries = 9, .keys = 9, .window = 1},
    {.queries = 9, .keys = 11, .heads = 4, .kv_heads = 2, .window = 4},
    {.batch = 1, .queries = 70, .keys = 70, .heads = 2, .kv_heads = 1, .width = 8},
    {.batch = 1, .queries = 67, .keys = 131, .heads = 1, .kv_heads = 1, .width = 2, .window = 40}};

bool sees_one_key(const Case& c) { return c.keys == 1 || c.window == 1; }

double scale_of(const Case& c) { return 1.3 / std::sqrt(static_cast<double>(c.width)); }

AttentionArgs separate(const Case& c, const Tensor& q, const Tensor& k, const Tensor& v) {
  const auto view = [&](const Tensor& t, int64_t heads) {
    return HeadView{.tensor = &t, .heads = heads, .head_dim = c.width, .head_stride = c.width};
  };
  return {.q = view(q, c.heads),
          .k = view(k, c.kv_heads),
          .v = view(v, c.kv_heads),
          .scale = scale_of(c),
          .causal = c.causal,
          .window = c.window};
}

// One tensor behind all three: GPT-2's [q | k | v] rows, or BLOOM's [head, (q, k, v), width] rows.
enum class Packing : uint8_t { kQkv, kHeadsFirst };

AttentionArgs packed(const Case& c, const Tensor& qkv, Packing packing) {
  AttentionArgs args = separate(c, qkv, qkv, qkv);
  if (packing == Packing::kQkv) {
    args.k.offset = c.heads * c.width;
    args.v.offset = (c.heads + c.kv_heads) * c.width;
  } else {
    args.k.offset = c.width;
    args.v.offset = 2 * c.width;
    args.q.head_stride = args.k.head_stride = args.v.head_stride = 3 * c.width;
  }
  return args;
}

Shape q_shape(const Case& c) { return {c.batch, c.queries, c.heads * c.width}; }
Shape k_shape(const Case& c) { return {c.batch, c.keys, c.kv_heads * c.width}; }
Shape qkv_shape(const Case& c) {
  return {c.batch, c.queries, (c.heads + 2 * c.kv_heads) * c.width};
}

TEST_CASE("attention: gradients of q, k and v against finite differences") {
  cpu::CpuBackend backend;
  for (const Case& c : kCases) {
    if (sees_one_key(c)) continue;  // no gradient of q and k: the next test
    CAPTURE(c.str());
    test::GradientCheck check(backend);
    check.input("q", q_shape(c), -2, 2);
    check.input("k", k_shape(c), -2, 2);
    check.input("v", k_shape(c));
    check.run([&](const Tensors& in) {
      return Tensors{ops::attention(separate(c, in[0], in[1], in[2]))};
    });
  }
}

TEST_CASE("attention: gradients with biases of keys, some of them hidden, against differences") {
  cpu::CpuBackend backend;
  const Case c = {.batch = 3, .queries = 5, .keys = 7, .heads = 4, .kv_heads = 2, .width = 3};
  for (const Shape& shape : {Shape{3, 4, 7}, Shape{1, 4, 9}, Shape{3, 1, 7}}) {
    CAPTURE(shape.str());
    std::vector<double> values = test::random_values(shape.numel(), 5, -2, 2);
    // Keys 0 and 1 of the first row: all queries of later rows still see something.
    values[0] = values[1] = -std::numeric_limits<double>::infinity();
    const Tensor bias = test::make_tensor(backend, shape, DType::kF64, values);
    test::GradientCheck check(backend);
    check.input("q", q_shape(c), -2, 2);
    check.input("k", k_shape(c), -2, 2);
    check.input("v", k_shape(c));
    check.run([&](const Tensors& in) {
      AttentionArgs args = separate(c, in[0], in[1], in[2]);
      args.key_bias = &bias;
      return Tensors{ops::attention(args)};
    });
  }
}

// first_key of rows of `length` that begin with documents of so many tokens.
Tensor documents(Backend& backend, int64_t length, const std::vector<std::vector<int64_t>>& rows) {
  std::vector<int32_t> first;
  for (const std::vector<int64_t>& row : rows) {
    const size_t end = first.size() + static_cast<size_t>(length);
    int64_t begin = 0;
    for (const int64_t count : row) {
      first.insert(first.end(), static_cast<size_t>(count), static_cast<int32_t>(begin));
      begin += count;
    }
    first.resize(end, static_cast<int32_t>(begin));
  }
  return Tensor::from_host(backend, Shape{std::ssize(rows), length}, first);
}

TEST_CASE("attention: gradients of documents that share a row, with a window, ALiBi and dropout") {
  cpu::CpuBackend backend;
  const Tensor bias = test::random_tensor(backend, Shape{1, 4, 9}, DType::kF64, 6);
  const Tensor samples = Tensor::from_host(backend, Shape{2}, std::vector<int64_t>{3, 8});
  for (const int64_t window : {0, 2, 20}) {
    const Case c = {.queries = 9, .keys = 9, .heads = 4, .kv_heads = 2, .window = window};
    const Tensor first = documents(backend, 9, {{4, 3}, {1, 1, 5}});
    test::GradientCheck check(backend);
    check.input("q", q_shape(c), -2, 2);
    check.input("k", k_shape(c), -2, 2);
    check.input("v", k_shape(c));
    check.run([&](const Tensors& in) {
      AttentionArgs args = separate(c, in[0], in[1], in[2]);
      args.first_key = &first;
      args.key_bias = &bias;
      args.hides_keys = false;
      args.dropout = {.probability = 0.3, .samples = &samples};
      return Tensors{ops::attention(args)};
    });
  }
}

// Row 1 is padded in front by two: queries 0 and 1 of it see nothing. With q = 0 for those,
// attention without mask or bias gives all scores 0, so all weights 1 / Tk: the same values and, at
// the same weights, the same gradients.
TEST_CASE("attention: a query whose keys are all hidden averages all values, later ones too") {
  cpu::CpuBackend backend;
  const Case c = {.batch = 2, .queries = 4, .keys = 4, .heads = 2, .kv_heads = 1, .width = 3};
  const double hidden = -std::numeric_limits<double>::infinity();
  const Tensor bias =
      test::make_tensor(backend, Shape{2, 1, 4}, DType::kF64, {0, 0, 0, 0, hidden, hidden, 0, 0});
  const std::vector<double> numbers = test::random_values(q_shape(c).numel(), 1);
  std::vector<double> blind = numbers, dout = test::random_values(q_shape(c).numel(), 4);
  const size_t row = 6, first = 4 * row, end = 6 * row;  // of q: queries 0 and 1 of row 1
  std::fill(blind.begin() + first, blind.begin() + end, 0.0);
  for (size_t i = 0; i < dout.size(); ++i) dout[i] = i >= first && i < end ? dout[i] : 0;
  const auto run = [&](const std::vector<double>& queries, bool masked) {
    Tape tape(backend);
    const test::Leaf q(tape, test::make_tensor(backend, q_shape(c), DType::kF64, queries));
    const test::Leaf k(tape, test::random_tensor(backend, k_shape(c), DType::kF64, 2));
    const test::Leaf v(tape, test::random_tensor(backend, k_shape(c), DType::kF64, 3));
    AttentionArgs args = separate(c, q.value(), k.value(), v.value());
    args.causal = masked;
    if (masked) args.key_bias = &bias;
    const Tensor y = ops::attention(args);
    tape.backward(y, test::make_tensor(backend, q_shape(c), DType::kF64, dout));
    return std::vector<std::vector<double>>{y.to_doubles(), q.gradient().to_doubles(),
                                            k.gradient().to_doubles(), v.gradient().to_doubles()};
  };
  const auto got = run(blind, true), plain = run(blind, false);
  for (size_t n = 0; n < got.size(); ++n) {
    CAPTURE(n);
    double largest = 0;
    for (size_t i = 0; i < got[n].size(); ++i) {
      if (n == 0 && (i < first || i >= end)) continue;  // the others see what they see
      CHECK(got[n][i] == doctest::Approx(plain[n][i]).epsilon(1e-14));
      largest = std::max(largest, std::abs(got[n][i]));
    }
    if (n != 2) CHECK(largest > 0.01);  // dk = sum of dscore * q, which is 0 here
  }
  // The value does not depend on q, the gradient of k does: it is what passes the softmax.
  const auto other = run(numbers, true);
  CHECK(std::equal(got[0].begin() + first, got[0].begin() + end, other[0].begin() + first));
  CHECK(other[2] != got[2]);
}

TEST_CASE("attention: keys with room behind them are those alone, and have no gradient") {
  cpu::CpuBackend backend;
  for (const Case& c : kCases) {
    CAPTURE(c.str());
    Case roomy = c;
    roomy.keys = c.keys + 5;
    const Tensor q = test::random_tensor(backend, q_shape(c), DType::kF64, 1);
    const Tensor k = test::random_tensor(backend, k_shape(roomy), DType::kF64, 2);
    const Tensor v = test::random_tensor(backend, k_shape(roomy), DType::kF64, 3);
    const auto first_rows = [&](const Tensor& from) {
      std::vector<double> out;
      const std::vector<double> all = from.to_doubles();
      const int64_t width = c.kv_heads * c.width;
      for (int64_t b = 0; b < c.batch; ++b) {
        const auto begin = all.begin() + b * roomy.keys * width;
        out.insert(out.end(), begin, begin + c.keys * width);
      }
      return test::make_tensor(backend, k_shape(c), DType::kF64, out);
    };
    AttentionArgs args = separate(c, q, k, v);
    args.keys = c.keys;
    const Tensor got = ops::attention(args);
    CHECK(got.to_doubles() ==
          ops::attention(separate(c, q, first_rows(k), first_rows(v))).to_doubles());
    Tape tape(backend);
    const test::Leaf leaf(tape, q);
    args.q.tensor = &leaf.value();
    CHECK(test::contains(error_of([&] { ops::attention(args); }), "keys: a gradient needs all"));
    args.keys = roomy.keys + 1;
    CHECK(test::contains(error_of([&] { ops::attention(args); }), "keys: expected at most"));
  }
}

TEST_CASE("attention: a query that sees one key passes everything to its value") {
  cpu::CpuBackend backend;
  for (const Case& c : kCases) {
    if (!sees_one_key(c)) continue;
    Tape tape(backend);
    const test::Leaf q(tape, test::random_tensor(backend, q_shape(c), DType::kF64, 1));
    const test::Leaf k(tape, test::random_tensor(backend, k_shape(c), DType::kF64, 2));
    const test::Leaf v(tape, test::random_tensor(backend, k_shape(c), DType::kF64, 3));
    const Tensor y = ops::attention(separate(c, q.value(), k.value(), v.value()));
    const Tensor dy = test::random_tensor(backend, q_shape(c), DType::kF64, 4);
    tape.backward(y, dy);
    const std::vector<double> values = v.value().to_doubles(), out = y.to_doubles();
    const std::vector<double> given = dy.to_doubles(), dv = v.gradient().to_doubles();
    for (size_t i = 0; i < out.size(); ++i) {
      CHECK(out[i] == doctest::Approx(values[i]).epsilon(1e-14));
      CHECK(dv[i] == doctest::Approx(given[i]).epsilon(1e-14));
    }
    for (const double g : q.gradient().to_doubles()) CHECK(std::abs(g) < 1e-15);
    for (const double g : k.gradient().to_doubles()) CHECK(std::abs(g) < 1e-15);
  }
}

// The heads of a view, copied into rows of heads side by side.
Tensor part_of(const Tensor& from, const HeadView& view) {
  const Shape shape = {from.shape()[0], from.shape()[1], view.heads * view.head_dim};
  const std::vector<double> all = from.to_doubles();
  std::vector<double> part;
  for (int64_t row = 0; row < shape.rows(); ++row) {
    for (int64_t h = 0; h < view.heads; ++h) {
      const int64_t begin = row * from.shape()[2] + view.offset + h * view.head_stride;
      for (int64_t d = 0; d < view.head_dim; ++d) {
        part.push_back(all[static_cast<size_t>(begin + d)]);
      }
    }
  }
  return Tensor::from_host(from.backend(), shape, part);
}

TEST_CASE("attention: packed rows give the same values and gradients as separate tensors") {
  cpu::CpuBackend backend;
  for (const Case& c : {kCases[0], kCases[2], kCases[9]}) {
    for (const Packing packing : {Packing::kQkv, Packing::kHeadsFirst}) {
      if (packing == Packing::kHeadsFirst && c.heads != c.kv_heads) continue;
      CAPTURE(c.str());
      Tape tape(backend);
      const test::Leaf qkv(tape, test::random_tensor(backend, qkv_shape(c), DType::kF64, 1));
      const AttentionArgs args = packed(c, qkv.value(), packing);
      const test::Leaf q(tape, part_of(qkv.value(), args.q));
      const test::Leaf k(tape, part_of(qkv.value(), args.k));
      const test::Leaf v(tape, part_of(qkv.value(), args.v));
      const Tensor dy = test::random_tensor(backend, q_shape(c), DType::kF64, 4);
      const Tensor one = ops::attention(args);
      const Tensor three = ops::attention(separate(c, q.value(), k.value(), v.value()));
      CHECK(one.to_doubles() == three.to_doubles());
      tape.backward(one, dy);
      tape.backward(three, dy);
      CHECK(part_of(qkv.gradient(), args.q).to_doubles() == q.gradient().to_doubles());
      CHECK(part_of(qkv.gradient(), args.k).to_doubles() == k.gradient().to_doubles());
      CHECK(part_of(qkv.gradient(), args.v).to_doubles() == v.gradient().to_doubles());
    }
  }
}

TEST_CASE("attention: packed rows against finite differences, and any two of q, k, v packed") {
  cpu::CpuBackend backend;
  const Case c;
  test::GradientCheck whole(backend);
  whole.input("qkv", qkv_shape(c), -2, 2);
  for (const Packing packing : {Packing::kQkv, Packing::kHeadsFirst}) {
    whole.run(
        [&](const Tensors& in) { return Tensors{ops::attention(packed(c, in[0], packing))}; });
  }
  test::GradientCheck pairs(backend);
  pairs.input("two", Shape{c.batch, c.queries, 2 * c.heads * c.width}, -2, 2);
  pairs.input("one", q_shape(c), -2, 2);
  for (const int alone : {0, 1, 2}) {
    CAPTURE(alone);
    pairs.run([&](const Tensors& in) {
      AttentionArgs args = separate(c, in[0], in[0], in[0]);
      HeadView* views[] = {&args.q, &args.k, &args.v};
      views[alone]->tensor = &in[1];
      views[alone == 2 ? 1 : 2]->offset = c.heads * c.width;
      return Tensors{ops::attention(args)};
    });
  }
}

TEST_CASE("attention: dropout of the weights replays in backward") {
  cpu::CpuBackend backend;
  const Case c = {.queries = 7, .keys = 7, .heads = 4, .kv_heads = 2};
  const Tensor samples = Tensor::from_host(backend, Shape{2}, std::vector<int64_t>{3, 8});
  const ForwardContext context = {
      .training = true, .dropout = {.seed = 5, .step = 3}, .samples = &samples};
  const auto attend = [&](const Tensor& q, const Tensor& k, const Tensor& v, int64_t layer) {
    AttentionArgs args = separate(c, q, k, v);
    args.dropout = ops::dropout_args(context, 0.4, layer, ops::DropoutSite::kAttentionWeights);
    return ops::attention(args);
  };
  test::GradientCheck check(backend);
  check.input("q", q_shape(c), -2, 2);
  check.input("k", k_shape(c), -2, 2);
  check.input("v", k_shape(c));
  check.run([&](const Tensors& in) { return Tensors{attend(in[0], in[1], in[2], 1)}; });
  const Tensor q = test::random_tensor(backend, q_shape(c), DType::kF32, 1);
  const Tensor k = test::random_tensor(backend, k_shape(c), DType::kF32, 2);
  CHECK(attend(q, k, k, 1).to_doubles() == attend(q, k, k, 1).to_doubles());
  CHECK(attend(q, k, k, 1).to_doubles() != attend(q, k, k, 2).to_doubles());
}

TEST_CASE("attention: saves its output and one number per query and head") {
  cpu::CpuBackend backend;
  Tape tape(backend);
  const Case c = {.batch = 1, .queries = 64, .keys = 64, .heads = 4, .kv_heads = 4, .width = 16};
  const test::Leaf q(tape, test::random_tensor(backend, q_shape(c), DType::kF32, 1));
  const auto activations = [&] {
    return backend.ledger().usage().current[static_cast<size_t>(MemoryCategory::kActivation)];
  };
  const size_t before = activations();
  const Tensor y = ops::attention(separate(c, q.value(), q.value(), q.value()));
  CHECK(activations() - before == 64 * 64 * 4 + 4 * 64 * 4);
}

// ---------------------------------------------------------------------------- Checks

std::string attention_error(const Tensor& x, const std::function<void(AttentionArgs&)>& change) {
  AttentionArgs args = separate({}, x, x, x);
  change(args);
  return error_of([&] { ops::attention(args); });
}

TEST_CASE("attention: wrong heads are named") {
  cpu::CpuBackend backend;
  const Tensor x = Tensor::zeros(backend, Shape{2, 5, 6}, DType::kF32);
  CHECK(attention_error(x, [](AttentionArgs& a) { a.k.heads = 3; }) ==
        "[attention] k: expected heads within rows of 6 elements, got up to 9");
  CHECK(attention_error(x, [](AttentionArgs& a) { a.v.offset = 1; }) ==
        "[attention] v: expected heads within rows of 6 elements, got up to 7");
  CHECK(attention_error(x, [](AttentionArgs& a) { a.k.heads = a.v.heads = 0; }) ==
        "[attention] heads: expected key-value heads that divide 2 query heads, got 0 and 0");
  CHECK(attention_error(x, [](AttentionArgs& a) { a.k.heads = 1; }) ==
        "[attention] heads: expected key-value heads that divide 2 query heads, got 1 and 2");
  CHECK(attention_error(x, [](AttentionArgs& a) { a.v.head_dim = 2; }) ==
        "[attention] head_dim: expected equal ones, got 3, 3, 2");
}

TEST_CASE("attention: wrong tensors are named") {
  cpu::CpuBackend backend;
  const Tensor x = Tensor::zeros(backend, Shape{2, 5, 6}, DType::kF32);
  const Tensor flat = Tensor::zeros(backend, Shape{10, 6}, DType::kF32);
  CHECK(attention_error(x, [&](AttentionArgs& a) { a.q.tensor = &flat; }) ==
        "[attention] q: expected a (B, T, row_width) tensor");
  const Tensor shorter = Tensor::zeros(backend, Shape{2, 4, 6}, DType::kF32);
  CHECK(attention_error(x, [&](AttentionArgs& a) { a.k.tensor = a.v.tensor = &shorter; }) ==
        "[attention] lengths: expected queries <= keys = values, got 5, 4, 4");
  const Tensor smaller = Tensor::zeros(backend, Shape{1, 5, 6}, DType::kF32);
  CHECK(attention_error(x, [&](AttentionArgs& a) { a.k.tensor = a.v.tensor = &smaller; }) ==
        "[attention] batch: expected equal ones, got 2, 1, 1");
  const Tensor half = Tensor::zeros(backend, Shape{2, 5, 6}, DType::kBF16);
  CHECK(attention_error(x, [&](AttentionArgs& a) { a.v.tensor = &half; }) ==
        "[attention] v: expected f32, got bf16");
  const Tensor samples = Tensor::zeros(backend, Shape{3}, DType::kI64);
  CHECK(attention_error(x, [&](AttentionArgs& a) {
          a.dropout = {.probability = 0.5, .samples = &samples};
        }) == "[attention] samples: expected (2), got (3)");
  const Tensor short_bias = Tensor::zeros(backend, Shape{2, 1, 4}, DType::kF32);
  CHECK(attention_error(x, [&](AttentionArgs& a) { a.key_bias = &short_bias; }) ==
        "[attention] key_bias: expected (1 or 2, 1 or 2, 5 or more), got (2, 1, 4)");
  const Tensor wide_bias = Tensor::zeros(backend, Shape{1, 1, 5}, DType::kF64);
  CHECK(attention_error(x, [&](AttentionArgs& a) { a.key_bias = &wide_bias; }) ==
        "[attention] key_bias: expected f32, got f64");
}

TEST_CASE("attention: documents where they would see others are refused") {
  cpu::CpuBackend backend;
  const Tensor x = Tensor::zeros(backend, Shape{2, 5, 6}, DType::kF32);
  const Tensor first = Tensor::zeros(backend, Shape{2, 5}, DType::kI32);
  const Tensor shorter = Tensor::zeros(backend, Shape{2, 4}, DType::kI32);
  const Tensor wide = Tensor::zeros(backend, Shape{2, 5}, DType::kI64);
  const Tensor bias = Tensor::zeros(backend, Shape{2, 1, 5}, DType::kF32);
  const auto refusal = [&](const std::function<void(AttentionArgs&)>& change) {
    return attention_error(x, [&](AttentionArgs& a) {
      a.first_key = &first;
      change(a);
    });
  };
  CHECK(refusal([](AttentionArgs&) {}) == "");
  CHECK(refusal([&](AttentionArgs& a) { a.first_key = &shorter; }) ==
        "[attention] first_key: expected (2, 5), got (2, 4)");
  CHECK(refusal([&](AttentionArgs& a) { a.first_key = &wide; }) ==
        "[attention] first_key: expected i32, got i64");
  CHECK(test::contains(refusal([](AttentionArgs& a) { a.causal = false; }),
                       "first_key: expected a causal mask"));
  CHECK(test::contains(refusal([](AttentionArgs& a) { a.keys = 5; }),
                       "first_key: expected no cache of keys"));
  CHECK(test::contains(refusal([&](AttentionArgs& a) { a.key_bias = &bias; }),
                       "first_key: expected no key_bias that hides keys"));
}

}  // namespace
}  // namespace fsdp
