// Softmax cross-entropy and its gradient against log-sum-exp in double, ignored rows, wrong labels.
#include "core/layer_args.h"
#include "tests/support/kernel_support.h"

namespace fsdp::test {
namespace {

struct Case {
  int64_t rows, vocabulary;
  int64_t padding = 0;  // of rows, with what is not a number
};
constexpr Case kCases[] = {{1, 1},     {1, 5},     {7, 33},       {7, 33, 1},
                           {20, 1003}, {3, 50257}, {3, 50257, 47}};
constexpr DType kLogitTypes[] = {DType::kF32, DType::kF64, DType::kBF16};

std::vector<int32_t> labels_of(const Case& c) {
  std::vector<int32_t> labels;
  for (const double value : random_values(c.rows, 9, 0, double(c.vocabulary))) {
    labels.push_back(labels.size() % 4 == 2 ? kIgnoreIndex : int32_t(value));
  }
  return labels;
}

struct Expected {
  double loss = 0;
  Values gradient;
};

Expected reference(const Case& c, const Values& logits, const std::vector<int32_t>& labels,
                   double scale) {
  Expected e{0, Values(logits.size(), 0.0)};
  for (int64_t row = 0; row < c.rows; ++row) {
    const double* x = logits.data() + row * c.vocabulary;
    const int32_t label = labels[size_t(row)];
    if (label == kIgnoreIndex) continue;
    const double largest = *std::max_element(x, x + c.vocabulary);
    double total = 0;
    for (int64_t i = 0; i < c.vocabulary; ++i) total += std::exp(x[i] - largest);
    e.loss += std::log(total) + largest - x[label];
    double* g = e.gradient.data() + row * c.vocabulary;
    for (int64_t i = 0; i < c.vocabulary; ++i) g[i] = std::exp(x[i] - largest) / total * scale;
    g[label] -= scale;
  }
  return e;
}

// {loss_sum, dlogits}; dlogits overwrites logits when of the same dtype; loss_sum starts at
// `start`.
std::vector<Values> run(Backend& backend, const Case& c, DType dtype, DType gradient_type,
                        const Values& values, double scale, double start) {
  Tensor logits = padded_tensor(backend, c.vocabulary, c.padding, dtype, values);
  Tensor apart =
      padded_tensor(backend, c.vocabulary, c.padding, gradient_type, Values(values.size(), 7.0));
  Tensor& dlogits = gradient_type == dtype ? logits : apart;
  const Tensor labels = Tensor::from_host(backend, {c.rows}, labels_of(c));
  Tensor loss = make_tensor(backend, {}, accumulation_dtype(dtype), {start});
  backend.run(backend.compute_stream(), CrossEntropyArgs{.logits = logits,
                                                         .vocabulary = c.padding ? c.vocabulary : 0,
                                                         .labels = labels,
                                                         .loss_sum = loss,
                                                         .dlogits = &dlogits,
                                                         .gradient_scale = scale});
  return {loss.to_doubles(), without_padding(dlogits, c.vocabulary)};
}

TEST_CASE("cross_entropy against a reference in double") {
  for (const DType dtype : kLogitTypes) {
    for (const DType gradient_type : kFloatingTypes) {
      if (dtype == DType::kBF16 && gradient_type != dtype) continue;
      for (const Case& c : kCases) {
        const Values logits = rounded(random_values(c.rows * c.vocabulary, 1, -9, 9), dtype);
        const auto out = on_any_threads(
            [&](Backend& any) { return run(any, c, dtype, gradient_type, logits, 0.25, 3); });
        const Expected e = reference(c, logits, labels_of(c), 0.25);
        CAPTURE(name_of(dtype));
        CAPTURE(c.vocabulary);
        const double limit = tolerance(accumulation_dtype(dtype), 32);
        CHECK(largest_error(out[0], {3 + e.loss}) < limit);
        // a probability is relative to itself; below the smallest normal f16 it is absolute
        const double floor = gradient_type == DType::kF16 ? 0.1 : 1e-3;
        CHECK(largest_error(out[1], e.gradient, floor) < limit + 2 * unit_roundoff(gradient_type));
      }
    }
  }
}

TEST_CASE("a row of more than 1024 runs of 512 logits") {
  cpu::CpuBackend backend;
  const Case c = {1, 524803};
  const Values logits = rounded(random_values(c.vocabulary, 1, -9, 9), DType::kF32);
  const auto out = run(backend, c, DType::kF32, DType::kF32, logits, 0.25, 3);
  const Expected e = reference(c, logits, labels_of(c), 0.25);
  CHECK(largest_error(out[0], {3 + e.loss}) < tolerance(DType::kF32, 32));
  CHECK(largest_error(out[1], e.gradient, 1e-3) < tolerance(DType::kF32, 32));
}

TEST_CASE("loss only leaves the logits alone") {
  cpu::CpuBackend backend(with_threads(2));
  const Case c = {7, 33};
  const Values values = random_values(c.rows * c.vocabulary, 1, -9, 9);
  Tensor logits = make_tensor(backend, {c.rows, c.vocabulary}, DType::kF64, values);
  const Tensor labels = Tensor::from_host(backend, {c.rows}, labels_of(c));
  Tensor loss = make_tensor(backend, {}, DType::kF64, {0});
  backend.run(backend.compute_stream(),
              CrossEntropyArgs{.logits = logits, .labels = labels, .loss_sum = loss});
  CHECK(logits.to_doubles() == values);
  CHECK(largest_error(loss.to_doubles(), {reference(c, values, labels_of(c), 1).loss}) < 1e-14);
}

TEST_CASE("large logits neither overflow nor lose a certain label") {
  cpu::CpuBackend backend;
  const Case c = {1, 5};
  const Values logits = {-1e4, 1e4, 3e4, -3e4, 0};
  const auto out = run(backend, c, DType::kF32, DType::kF32, logits, 1, 0);
  const Expected e = reference(c, logits, labels_of(c), 1);
  CHECK(largest_error(out[0], {e.loss}) < 1e-6);
  CHECK(largest_error(out[1], e.gradient) < 1e-6);
}

TEST_CASE("the gradient of bf16 logits is bf16") {
  cpu::CpuBackend backend;
  Tensor logits = Tensor::zeros(backend, {2, 7}, DType::kBF16);
  Tensor wide = Tensor::zeros(backend, {2, 7}, DType::kF32);
  Tensor loss = Tensor::zeros(backend, {}, DType::kF32);
  const Tensor labels = Tensor::from_host<int32_t>(backend, {2}, {0, 1});
  CHECK_THROWS_WITH_AS(
      backend.run(
          backend.compute_stream(),
          CrossEntropyArgs{.logits = logits, .labels = labels, .loss_sum = loss, .dlogits = &wide}),
      "[cross_entropy] dtype of dlogits: expected bf16 beside logits of bf16, got f32", Error);
}

TEST_CASE("hidden logits at the begin of a row") {
  cpu::CpuBackend backend;
  Values values(1500, -INFINITY);  // runs of 512
  values[1000] = 1;
  values[1499] = 3;
  for (const DType dtype : kLogitTypes) {
    Tensor logits = make_tensor(backend, {1, 1500}, dtype, values);
    Tensor loss = Tensor::zeros(backend, {}, accumulation_dtype(dtype));
    const Tensor labels = Tensor::from_host<int32_t>(backend, {1}, {1499});
    backend.run(
        backend.compute_stream(),
        CrossEntropyArgs{.logits = logits, .labels = labels, .loss_sum = loss, .dlogits = &logits});
    CHECK(largest_error(loss.to_doubles(), {std::log1p(std::exp(-2.0))}) < 1e-6);
    const Values gradient = logits.to_doubles();
    const double p = 1 / (1 + std::exp(2.0));
    CHECK(largest_error({gradient[0], gradient[1000], gradient[1499]}, {0, p, -p}) <
          1e-6 + unit_roundoff(dtype));
  }
}

TEST_CASE("a label outside the vocabulary is an error") {
  for (const int32_t label : {5, -1, -101}) {
    cpu::CpuBackend backend;
    Tensor logits = Tensor::zeros(backend, {2, 7}, DType::kF32);
    const Tensor labels = Tensor::from_host<int32_t>(backend, {2}, {0, label});
    Tensor loss = Tensor::zeros(backend, {}, DType::kF32);
    backend.run(
        backend.compute_stream(),
        CrossEntropyArgs{.logits = logits, .vocabulary = 5, .labels = labels, .loss_sum = loss});
    CHECK_THROWS_WITH_AS(backend.synchronize(backend.compute_stream()),
                         doctest::Contains("[cross_entropy] label: expected in [0, 5)"), Error);
  }
}

}  // namespace
}  // namespace fsdp::test
