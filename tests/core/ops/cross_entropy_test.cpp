// Head and cross-entropy in one op: the loss against log-softmax in double, gradients against
// finite differences, chunks against the whole, tied weights, memory, checks.
#include "core/ops/cross_entropy.h"

#include <cmath>

#include <doctest/doctest.h>

#include "core/ops/embedding.h"
#include "core/ops/linear.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/gradient_check.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"

namespace fsdp {
namespace {

using test::error_of;
using Doubles = std::vector<double>;

constexpr ops::HeadOptions kNarrow = {.logits_dtype = DType::kBF16};

int64_t chunk_rows(int64_t rows, int64_t vocabulary, DType logits = DType::kF32,
                   int64_t bytes = ops::HeadOptions().chunk_bytes) {
  return ops::head_chunk_rows(rows, vocabulary, logits, bytes);
}

std::vector<int32_t> labels_for(int64_t rows, int64_t vocabulary) {
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < rows; ++i) {
    const bool ignored = i % 5 == 3;
    labels.push_back(ignored ? kIgnoreIndex : static_cast<int32_t>((7 * i + 2) % vocabulary));
  }
  return labels;
}

struct Reference {
  double loss = 0;
  Doubles dh, dw;
};

// The whole matrix of logits in double.
Reference reference(const Doubles& h, const Doubles& w, const std::vector<int32_t>& labels,
                    size_t channels, double scale) {
  const size_t vocabulary = w.size() / channels;
  Reference r = {.dh = Doubles(h.size()), .dw = Doubles(w.size())};
  for (size_t row = 0; row < labels.size(); ++row) {
    if (labels[row] == kIgnoreIndex) continue;
    Doubles p(vocabulary);
    double total = 0;
    for (size_t v = 0; v < vocabulary; ++v) {
      double logit = 0;
      for (size_t i = 0; i < channels; ++i) logit += h[row * channels + i] * w[v * channels + i];
      total += p[v] = std::exp(logit);
    }
    for (double& x : p) x /= total;
    r.loss -= std::log(p[static_cast<size_t>(labels[row])]);
    p[static_cast<size_t>(labels[row])] -= 1;
    for (size_t v = 0; v < vocabulary; ++v) {
      for (size_t i = 0; i < channels; ++i) {
        r.dh[row * channels + i] += scale * p[v] * w[v * channels + i];
        r.dw[v * channels + i] += scale * p[v] * h[row * channels + i];
      }
    }
  }
  return r;
}

double distance(const Doubles& a, const Doubles& b) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(error / norm);
}

TEST_CASE("cross entropy: gradients of states and weight against finite differences") {
  cpu::CpuBackend backend;
  for (const Shape& shape : {Shape{1, 2}, Shape{2, 3, 5}, Shape{150, 3}}) {
    CAPTURE(shape.str());
    const int64_t vocabulary = 11;
    const Tensor labels =
        Tensor::from_host(backend, Shape{shape.rows()}, labels_for(shape.rows(), vocabulary));
    test::GradientCheck check(backend);
    check.input("h", shape);
    Parameter& w = check.parameter("w", Shape{vocabulary, shape.last()});
    check.run_loss(
        [&](const std::vector<Tensor>& in) {
          return ops::linear_cross_entropy(in[0], w, labels, 0.25);
        },
        0.25, 8);
  }
}

TEST_CASE(
    "cross entropy: a bias, its gradient in one and in several chunks, alone or with the weight") {
  cpu::CpuBackend backend;
  for (const int64_t rows : {5, 150}) {
    const int64_t vocabulary = 11;
    const Tensor labels = Tensor::from_host(backend, Shape{rows}, labels_for(rows, vocabulary));
    test::GradientCheck check(backend);
    check.input("h", Shape{rows, 3});
    Parameter& w = check.parameter("w", Shape{vocabulary, 3});
    Parameter& b = check.parameter("b", Shape{vocabulary});
    const auto loss = [&](const std::vector<Tensor>& in) {
      return ops::linear_cross_entropy(in[0], w, labels, 0.25, nullptr, &b);
    };
    check.run_loss(loss, 0.25, 8);
    w.set_trainable(false);
    check.run_loss(loss, 0.25, 8);
    Parameter wrong("wrong", Shape{vocabulary + 1}, {}, false);
    const Tensor h = test::random_tensor(backend, Shape{rows, 3}, DType::kF64, 1);
    CHECK(error_of([&] { ops::linear_cross_entropy(h, w, labels, 1, nullptr, &wrong); }) ==
          "[cross_entropy] wrong: expected (11), got (12)");
  }
}

TEST_CASE("cross entropy: one chunk, several chunks and the whole matrix agree in every dtype") {
  cpu::CpuBackend backend;
  const int64_t channels = 7, vocabulary = 37;
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t rows : {1, 64, 65, 150, 300}) {
      CAPTURE(name_of(dtype));
      CAPTURE(rows);
      Tape tape(backend);
      const test::Leaf h(tape, test::random_tensor(backend, Shape{rows, channels}, dtype, 1));
      Parameter w("w", Shape{vocabulary, channels}, {}, true);
      w.set_value(test::random_tensor(backend, w.shape(), dtype, 2));
      w.set_tape(&tape);
      const std::vector<int32_t> labels = labels_for(rows, vocabulary);
      const Tensor loss = ops::linear_cross_entropy(
          h.value(), w, Tensor::from_host(backend, Shape{rows}, labels), 0.5);
      CHECK(loss.dtype() == accumulation_dtype(dtype));
      tape.backward(loss);
      const Reference r = reference(h.value().to_doubles(), w.value().to_doubles(), labels, 7, 0.5);
      // The loss is summed in the wide dtype; the logits' gradient is rounded once, the weight's
      // is a sum over rows.
      const double unit = test::unit_roundoff(dtype);
      const double wide = test::unit_roundoff(accumulation_dtype(dtype));
      CHECK(std::abs(loss.item() - r.loss) <= 8 * wide * r.loss);
      CHECK(distance(w.gradient().to_doubles(), r.dw) <=
            (2 + 0.5 * std::sqrt(static_cast<double>(rows))) * unit);
      CHECK(distance(h.gradient().to_doubles(), r.dh) <= 2 * unit);
      CHECK(w.pending_uses() == 0);
    }
  }
}

TEST_CASE("cross entropy: several chunks of a bf16 weight gradient add up in f32") {
  cpu::CpuBackend backend;
  Tape tape(backend);
  const int64_t rows = 600, channels = 5, vocabulary = 9;
  REQUIRE(rows > chunk_rows(rows, vocabulary));
  const Tensor values = test::random_tensor(backend, Shape{rows, channels}, DType::kBF16, 1);
  const Tensor labels = Tensor::from_host(backend, Shape{rows}, labels_for(rows, vocabulary));
  Parameter w("w", Shape{vocabulary, channels}, {}, true);
  w.set_value(test::random_tensor(backend, w.shape(), DType::kBF16, 2));
  w.set_tape(&tape);
  const auto run = [&] {
    const test::Leaf h(tape, values);
    tape.backward(ops::linear_cross_entropy(h.value(), w, labels, 1));
  };
  run();  // f32 gradient
  const Doubles wide = w.gradient().to_doubles();
  w.clear_gradient();
  w.set_gradient_memory([&] { return Tensor::empty(backend, w.shape(), DType::kBF16); });
  run();
  CHECK(w.gradient().dtype() == DType::kBF16);
  CHECK(w.gradient().to_doubles() == test::rounded(wide, DType::kBF16));
}

TEST_CASE("cross entropy: a table that is embedding and head gets both gradients") {
  cpu::CpuBackend backend;
  const Tensor tokens =
      Tensor::from_host(backend, Shape{2, 3}, std::vector<int32_t>{1, 4, 1, 0, 3, 4});
  const Tensor labels = Tensor::from_host(backend, Shape{6}, labels_for(6, 5));
  test::GradientCheck check(backend);
  Parameter& table = check.parameter("table", Shape{5, 3});
  Parameter& w = check.parameter("w", Shape{3, 3});
  check.run_loss(
      [&](const std::vector<Tensor>&) {
        return ops::linear_cross_entropy(ops::linear(ops::embedding(tokens, table), {.weight = w}),
                                         table, labels, 0.2);
      },
      0.2, 10);
}

TEST_CASE("cross entropy: a frozen head passes the gradient on, frozen states need none") {
  cpu::CpuBackend backend;
  const Tensor labels = Tensor::from_host(backend, Shape{4}, labels_for(4, 5));
  test::GradientCheck check(backend);
  check.input("h", Shape{4, 3});
  Parameter& w = check.parameter("w", Shape{5, 3});
  w.set_trainable(false);
  check.run_loss([&](const auto& in) { return ops::linear_cross_entropy(in[0], w, labels, 1); }, 1);
  test::GradientCheck head(backend);
  Parameter& trained = head.parameter("w", Shape{5, 3});
  const Tensor h = test::random_tensor(backend, Shape{4, 3}, DType::kF64, 1);
  head.run_loss([&](const auto&) { return ops::linear_cross_entropy(h, trained, labels, 1); }, 1);
}

TEST_CASE("cross entropy: without recording there is a loss and no gradient") {
  cpu::CpuBackend backend;
  Tape tape(backend);
  Parameter w("w", Shape{5, 3}, {}, true);
  w.set_value(test::random_tensor(backend, w.shape(), DType::kF64, 2));
  w.set_tape(&tape);
  const Tensor h = test::random_tensor(backend, Shape{4, 3}, DType::kF64, 1);
  const Tensor labels = Tensor::from_host(backend, Shape{4}, labels_for(4, 5));
  const double recorded = ops::linear_cross_entropy(h, w, labels, 1).item();
  w.clear_gradient();
  const Tape::Pause pause(tape);
  const Tensor loss = ops::linear_cross_entropy(h, w, labels, 1);
  CHECK(loss.item() == recorded);
  CHECK_FALSE(loss.requires_grad());
  CHECK_FALSE(w.gradient().defined());
}

TEST_CASE("cross entropy: chunks are bounded, and never all rows of a large batch") {
  for (const int64_t vocabulary : {int64_t{2}, int64_t{97}, int64_t{50257}, int64_t{128256}}) {
    for (const int64_t rows : {int64_t{1}, int64_t{16}, int64_t{64}, int64_t{65}, int64_t{4096}}) {
      CAPTURE(vocabulary);
      CAPTURE(rows);
      const int64_t chunk = chunk_rows(rows, vocabulary);
      CHECK(chunk >= 1);
      CHECK(chunk <= rows);
      if (rows > 64) CHECK(chunk < rows);
      if (chunk > std::max<int64_t>(16, rows / 16)) {
        CHECK(chunk * vocabulary * 4 <= int64_t{64} << 20);
      }
      if (chunk < rows && chunk > 16) CHECK(chunk % 16 == 0);
    }
  }
  CHECK(chunk_rows(4096, 50257) == 256);
  CHECK(chunk_rows(65536, 50257) == 4096);
  CHECK(chunk_rows(16384, 151936) == 1024);
}

TEST_CASE("cross entropy: a chunk's bytes and the dtype of logits say how many rows it has") {
  constexpr int64_t kMiB = int64_t{1} << 20;
  CHECK(chunk_rows(4096, 50257, DType::kBF16) == 640);
  CHECK(chunk_rows(4096, 50257, DType::kF64) == 256);  // a sixteenth: 166 would fit
  CHECK(chunk_rows(2048, 50257, DType::kF64) == 128);
  CHECK(chunk_rows(4096, 50257, DType::kF32, 256 * kMiB) == 1280);
  CHECK(chunk_rows(4096, 50257, DType::kF32, 1024 * kMiB) == 2048);  // half of the rows
  CHECK(chunk_rows(256, 50257, DType::kF32, kMiB) == 16);
  CHECK(chunk_rows(4096, 128256, DType::kBF16, 512 * kMiB) == 2048);
}

TEST_CASE("cross entropy: rows of logits lie a multiple of 64 elements apart") {
  for (const auto& [vocabulary, row] :
       {std::pair{1, 64}, {64, 64}, {65, 128}, {50257, 50304}, {32000, 32000}}) {
    CHECK(ops::logits_row(vocabulary) == row);
  }
}

TEST_CASE("cross entropy: the logits of one chunk are all that exists") {
  cpu::CpuBackend backend;
  Tape tape(backend);
  const int64_t rows = 512, channels = 8, vocabulary = 100;
  const test::Leaf h(tape, test::random_tensor(backend, Shape{rows, channels}, DType::kBF16, 1));
  Parameter w("w", Shape{vocabulary, channels}, {}, true);
  w.set_value(test::random_tensor(backend, w.shape(), DType::kBF16, 2));
  w.set_tape(&tape);
  const Tensor labels = Tensor::from_host(backend, Shape{rows}, labels_for(rows, vocabulary));
  const auto activation = static_cast<size_t>(MemoryCategory::kActivation);
  backend.ledger().reset_peak();
  const size_t before = backend.ledger().usage().current[activation];
  const Tensor loss = ops::linear_cross_entropy(h.value(), w, labels, 1);
  const MemoryUsage usage = backend.ledger().usage();
  const size_t saved = rounded_bytes(rows * channels * 2) + rounded_bytes(4);  // dh and the loss
  const auto chunk = static_cast<size_t>(chunk_rows(rows, vocabulary));
  CHECK(usage.current[activation] - before == saved);
  CHECK(usage.peak[activation] - before ==
        saved + rounded_bytes(chunk * 128 * 4) + rounded_bytes(chunk * 128 * 2));
  // Logits of bf16 are one buffer, with the gradients in it.
  w.clear_gradient();
  const size_t without = backend.ledger().usage().current[activation];
  backend.ledger().reset_peak();
  const Tensor narrow =
      ops::linear_cross_entropy(h.value(), w, labels, 1, nullptr, nullptr, kNarrow);
  CHECK(backend.ledger().usage().peak[activation] - without ==
        saved + rounded_bytes(chunk * 128 * 2));
}

// A logit is rounded by at most 2^-9 of itself. So much the logarithm of a row's sum and the logit
// of its label move, and twice as much, of itself, a probability.
TEST_CASE("cross entropy: logits of bf16 within their rounding of the whole matrix in double") {
  cpu::CpuBackend backend;
  const int64_t channels = 7, vocabulary = 1003;
  for (const int64_t rows : {1, 65, 300}) {
    CAPTURE(rows);
    Tape tape(backend);
    const test::Leaf h(tape, test::random_tensor(backend, Shape{rows, channels}, DType::kBF16, 1));
    Parameter w("w", Shape{vocabulary, channels}, {}, true);
    w.set_value(test::random_tensor(backend, w.shape(), DType::kBF16, 2));
    w.set_tape(&tape);
    const std::vector<int32_t> labels = labels_for(rows, vocabulary);
    const Tensor ids = Tensor::from_host(backend, Shape{rows}, labels);
    const auto loss_of = [&](const ops::HeadOptions& options) {
      return ops::linear_cross_entropy(h.value(), w, ids, 0.5, nullptr, nullptr, options);
    };
    const Tensor loss = loss_of(kNarrow);
    CHECK(loss.dtype() == DType::kF32);
    tape.backward(loss);
    const Doubles a = h.value().to_doubles(), b = w.value().to_doubles();
    const Reference r = reference(a, b, labels, 7, 0.5);
    double most = 0;  // of all logits
    for (size_t row = 0; row < labels.size(); ++row) {
      for (size_t v = 0; v < static_cast<size_t>(vocabulary); ++v) {
        double logit = 0;
        for (size_t i = 0; i < 7; ++i) logit += a[row * 7 + i] * b[v * 7 + i];
        most = std::max(most, std::abs(logit));
      }
    }
    const double unit = test::unit_roundoff(DType::kBF16), of_logit = most * unit;
    CHECK(std::abs(loss.item() - r.loss) <= 2 * of_logit * static_cast<double>(rows));
    const double of_gradient = 2 * of_logit + 2 * unit;
    CHECK(distance(w.gradient().to_doubles(), r.dw) <= of_gradient);
    CHECK(distance(h.gradient().to_doubles(), r.dh) <= of_gradient);
    // They were rounded, also where nothing is recorded.
    const Tape::Pause pause(tape);
    CHECK(loss_of(kNarrow).item() == loss.item());
    CHECK(loss_of({}).item() != loss.item());
  }
}

TEST_CASE("cross entropy: wrong use is named") {
  cpu::CpuBackend backend;
  Tape tape(backend);
  Parameter w("head.weight", Shape{5, 2}, {}, true);
  w.set_value(Tensor::zeros(backend, w.shape(), DType::kF32));
  const auto zeros = [&](Shape shape, DType dtype) { return Tensor::zeros(backend, shape, dtype); };
  const auto loss_error = [&](const Tensor& states, const Tensor& labels) {
    return error_of([&] { ops::linear_cross_entropy(states, w, labels, 1); });
  };
  const Tensor labels = zeros(Shape{4}, DType::kI32), two = zeros(Shape{2, 2, 2}, DType::kF32);
  CHECK(loss_error(zeros(Shape{4, 3}, DType::kF32), labels) ==
        "[cross_entropy] head.weight: expected (5, 3), got (5, 2)");
  CHECK(loss_error(two, zeros(Shape{2, 2}, DType::kI32)) ==
        "[cross_entropy] labels: expected (4), got (2, 2)");
  CHECK(loss_error(two, zeros(Shape{4}, DType::kI64)) ==
        "[cross_entropy] labels: expected i32, got i64");
  CHECK(loss_error(zeros(Shape{4, 2}, DType::kBF16), labels) ==
        "[cross_entropy] head.weight: expected bf16, got f32");
  CHECK(loss_error(zeros(Shape{0, 2}, DType::kF32), zeros(Shape{0}, DType::kI32)) ==
        "[cross_entropy] rows: expected at least one, got (0, 2)");
  CHECK(error_of([&] {
          ops::linear_cross_entropy(two, w, labels, 1, nullptr, nullptr, kNarrow);
        }) == "[cross_entropy] logits_dtype: expected f32 beside states of f32, got bf16");
  for (const DType states : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    CHECK(ops::can_have_logits(states, DType::kBF16) == (states == DType::kBF16));
    CHECK(ops::can_have_logits(states, DType::kF32) == (states != DType::kF64));
    CHECK_FALSE(ops::can_have_logits(states, DType::kF16));
  }
  w.set_tape(&tape);
  const Tensor loss = ops::linear_cross_entropy(two, w, labels, 1);
  CHECK(error_of([&] { tape.backward(loss, zeros(Shape{}, DType::kF32)); }) ==
        "[cross_entropy] backward: its gradient was fixed in forward by gradient_scale; start "
        "backward from this loss");
}

}  // namespace
}  // namespace fsdp
