// Dropout against the Philox words of core/rng.h, element by element.
#include "core/layer_args.h"
#include "tests/support/kernel_support.h"

namespace fsdp::test {
namespace {

constexpr DropoutKey kKey = {
    .seed = 0x123456789abcull, .step = 7, .micro_step = 2, .layer = 3, .site = 1};

bool keeps(uint64_t sample, uint64_t element, double probability) {
  const Philox4x32 words =
      philox4x32(dropout_counter(element / 4, sample, kKey.step), dropout_key(kKey));
  return double(uniform_float(words[element % 4])) >= probability;
}

std::vector<Values> drop(Backend& backend, DType dtype, const std::vector<int64_t>& samples,
                         const Values& values, double probability) {
  const int64_t batch = int64_t(samples.size()), size = int64_t(values.size()) / batch;
  Tensor x = make_tensor(backend, {batch, size}, dtype, values);
  Tensor y = Tensor::empty(backend, {batch, size}, dtype);
  const Tensor ids = Tensor::from_host(backend, {batch}, samples);
  const Dropout args = {.probability = probability, .key = kKey, .samples = &ids};
  backend.run(backend.compute_stream(), DropoutArgs{args, x, y});
  backend.run(backend.compute_stream(), DropoutArgs{args, x, x});
  return {y.to_doubles(), x.to_doubles()};
}

TEST_CASE("dropout zeroes and scales what the counter-based words say") {
  const std::vector<int64_t> samples = {5, 0, int64_t{1} << 33};
  for (const DType dtype : kFloatingTypes) {
    for (const int64_t size : {1, 3, 16, 1025, 9001}) {  // around words, runs and the grain
      for (const double probability : {0.0, 0.1, 0.5, 1.0}) {
        const Values x = rounded(random_values(3 * size, 1, 1, 2), dtype);
        const auto out = on_any_threads(
            [&](Backend& backend) { return drop(backend, dtype, samples, x, probability); });
        Values expected;
        for (size_t i = 0; i < x.size(); ++i) {
          const auto sample = uint64_t(samples[i / size_t(size)]), element = i % size_t(size);
          const bool kept = keeps(sample, element, probability);
          expected.push_back(kept ? x[i] / (1 - probability) : 0.0);
        }
        CAPTURE(name_of(dtype));
        CHECK(largest_error(out[0], expected, 0) < tolerance(dtype, 2));
        CHECK(out[1] == out[0]);  // in place
      }
    }
  }
}

TEST_CASE("a threshold between two words counts as at least the probability") {
  // Exactly representable: the word's uniform is the probability itself, and one 2^-24 above it.
  cpu::CpuBackend backend;
  const Philox4x32 words = philox4x32(dropout_counter(0, 5, kKey.step), dropout_key(kKey));
  const double uniform = double(uniform_float(words[0]));
  CHECK(drop(backend, DType::kF64, {5}, {1.0}, uniform)[0][0] != 0);
  CHECK(drop(backend, DType::kF64, {5}, {1.0}, uniform + 0x1p-25)[0][0] == 0);
}

}  // namespace
}  // namespace fsdp::test
