// SGD against its formulas, element by element: with and without momentum, dampened and Nesterov's,
// by segment, on any number of threads. PyTorch's recorded steps: tests/optim/optimizer_test.cpp.
#include "tests/support/kernel_support.h"

namespace fsdp::test {
namespace {

struct Rule {
  double momentum = 0, dampening = 0;
  bool nesterov = false;
  double weight_decay = 0.01;
};
const Rule kRules[] = {{}, {0.9}, {0.8, 0.2}, {0.9, 0, true, 0}, {0.9, 0, true}};

constexpr int64_t kSize = 100003;  // several grains, cut by the segments
constexpr double kRate = 0.05, kScale = 0.25;

// Unordered, with a gap before and after the last. Parameter 1 has no gradient in the first step.
const std::vector<ShardSegment> kSegments = {{40000, 40001, true, 2},
                                             {0, 33000, true, 0},
                                             {33000, 40000, true, 1},
                                             {40010, kSize - 2, false, 2}};
const std::vector<std::vector<int32_t>> kPresent = {{1, 0, 1}, {1, 1, 1}, {1, 1, 0}};

// Master, buffer (if any), copy after the steps.
std::vector<Values> steps(Backend& backend, const Rule& rule, DType dtype, int32_t skip = 0) {
  Stream& stream = backend.compute_stream();
  const Shape shape = {kSize};
  Tensor master = make_tensor(backend, shape, dtype, random_values(kSize, 1));
  Tensor buffer = Tensor::zeros(backend, shape, dtype);
  Tensor copy = make_tensor(backend, shape, DType::kBF16, Values(size_t{kSize}, 0.0));
  Tensor step_counts = Tensor::zeros(backend, {3}, DType::kI32);
  const Tensor skips = Tensor::from_host<int32_t>(backend, {}, {skip});
  const Tensor rate = make_tensor(backend, {}, DType::kF64, {kRate});
  const Tensor scale = make_tensor(backend, {}, dtype, {kScale});
  for (size_t t = 0; t < kPresent.size(); ++t) {
    const Tensor present = Tensor::from_host(backend, {3}, kPresent[t]);
    const Tensor grad = make_tensor(backend, shape, dtype, random_values(kSize, 2 + t));
    backend.advance_steps(stream, step_counts, present, skips);
    backend.sgd(stream, {.shard = {.master = master,
                                   .grad = grad,
                                   .copy = &copy,
                                   .segments = kSegments,
                                   .step_counts = step_counts,
                                   .present = present,
                                   .learning_rate = rate,
                                   .gradient_scale = scale,
                                   .skip = skips,
                                   .weight_decay = rule.weight_decay},
                         .momentum_buffer = rule.momentum > 0 ? &buffer : nullptr,
                         .momentum = rule.momentum,
                         .dampening = rule.dampening,
                         .nesterov = rule.nesterov});
  }
  return {master.to_doubles(), buffer.to_doubles(), copy.to_doubles()};
}

std::vector<Values> expected(const Rule& rule) {
  Values p = random_values(kSize, 1), b(size_t{kSize}, 0.0);
  std::vector<int> counts(3, 0);
  for (size_t t = 0; t < kPresent.size(); ++t) {
    const Values grad = random_values(kSize, 2 + t);
    for (size_t i = 0; i < 3; ++i) counts[i] += kPresent[t][i];
    for (const ShardSegment& s : kSegments) {
      const auto parameter = static_cast<size_t>(s.parameter);
      if (kPresent[t][parameter] == 0) continue;
      for (auto i = static_cast<size_t>(s.begin); i < static_cast<size_t>(s.end); ++i) {
        double g = kScale * grad[i] + (s.decay ? rule.weight_decay * p[i] : 0);
        if (rule.momentum > 0) {
          b[i] = counts[parameter] == 1 ? g : rule.momentum * b[i] + (1 - rule.dampening) * g;
          g = rule.nesterov ? g + rule.momentum * b[i] : b[i];
        }
        p[i] -= kRate * g;
      }
    }
  }
  return {p, b};
}

TEST_CASE("sgd takes the steps of its formulas, on any number of threads") {
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    for (const Rule& rule : kRules) {
      CAPTURE(name_of(dtype));
      CAPTURE(rule.momentum);
      CAPTURE(rule.nesterov);
      const auto out =
          on_any_threads([&](Backend& backend) { return steps(backend, rule, dtype); });
      const std::vector<Values> formulas = expected(rule);
      CHECK(largest_error(out[0], formulas[0]) < tolerance(dtype));
      CHECK(largest_error(out[1], formulas[1]) < tolerance(dtype));
      Values copy = rounded(out[0], DType::kBF16);
      for (const size_t gap : {40001, 40009, int(kSize) - 2, int(kSize) - 1}) {
        CHECK(out[2][gap] == 0);
      }
      for (const ShardSegment& s : kSegments) {
        CHECK(std::equal(copy.begin() + s.begin, copy.begin() + s.end, out[2].begin() + s.begin));
      }
    }
  }
}

TEST_CASE("sgd: a skipped step changes nothing") {
  cpu::CpuBackend backend;
  for (const Rule& rule : kRules) {
    const std::vector<Values> out = steps(backend, rule, DType::kF64, /*skip=*/1);
    CHECK(out[0] == random_values(kSize, 1));
    CHECK(out[1] == Values(size_t{kSize}, 0.0));
    CHECK(out[2] == Values(size_t{kSize}, 0.0));
  }
}

}  // namespace
}  // namespace fsdp::test
