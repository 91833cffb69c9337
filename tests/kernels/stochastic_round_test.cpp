// Stochastic rounding on the CPU: the values of the formula, and the same bits however a parameter
// is cut.
#include <bit>

#include "tests/support/rounding_case.h"

namespace fsdp::test {
namespace {

// Element by element, from the definition.
Values expected(const RoundingCase& c) {
  const Values x = rounding_values(c.n);
  Values out(x.size(), kUntouched);
  const RoundingStream stream(c.seed, c.update);
  for (const ParameterRun& run : c.runs) {
    for (int64_t i = run.begin; i < run.end; ++i) {
      const auto element = static_cast<uint64_t>(run.first + i - run.begin);
      const uint32_t draw = RoundingStream::draw(stream.words(run.name_hash, element / 8),
                                                 static_cast<uint32_t>(element % 8));
      BFloat16 rounded;
      rounded.bits = rounded_by_chance(
          std::bit_cast<uint32_t>(static_cast<float>(x[static_cast<size_t>(i)])), draw);
      out[static_cast<size_t>(i)] = static_cast<double>(static_cast<float>(rounded));
    }
  }
  return out;
}

TEST_CASE("rounding by chance is that of its definition, on any number of threads") {
  for (const RoundingCase& c : rounding_cases()) {
    CAPTURE(c.n);
    const auto out =
        on_any_threads([&](Backend& backend) { return std::vector<Values>{round_on(backend, c)}; });
    CHECK((out[0] == expected(c)));
  }
}

TEST_CASE("seed and update change the draws") {
  cpu::CpuBackend backend;
  const RoundingCase c = {5000, {{0, 5000, hash_name("w"), 0}}};
  RoundingCase seed = c, update = c;
  ++seed.seed;
  ++update.update;
  const Values first = round_on(backend, c);
  CHECK((round_on(backend, c) == first));
  CHECK((round_on(backend, seed) != first));
  CHECK((round_on(backend, update) != first));
}

TEST_CASE("a parameter that is cut anywhere is rounded as the whole") {
  cpu::CpuBackend backend;
  const uint64_t name = hash_name("w");
  const Values whole = round_on(backend, {300, {{0, 300, name, 0}}});
  for (const int64_t cut : {1, 7, 8, 64, 299}) {
    CAPTURE(cut);
    CHECK((round_on(backend, {300, {{0, cut, name, 0}, {cut, 300, name, cut}}}) == whole));
  }
}

// `x` rounded `elements` times in each of `updates` updates, all of them draws of their own: in
// units of the last place of bf16, from the neighbour below.
Values roundings(float x, int64_t elements, uint32_t updates) {
  cpu::CpuBackend backend;
  const double below = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0xffff0000u);
  const double above = std::bit_cast<float>((std::bit_cast<uint32_t>(x) & 0xffff0000u) + 0x10000u);
  const Tensor value = make_tensor(backend, {elements}, DType::kF32,
                                   Values(static_cast<size_t>(elements), double{x}));
  Tensor out = Tensor::empty(backend, {elements}, DType::kBF16);
  Values all;
  for (uint32_t update = 0; update < updates; ++update) {
    backend.run(backend.compute_stream(),
                StochasticRoundArgs{.x = value,
                                    .out = out,
                                    .runs = {{0, elements, hash_name("w"), 0}},
                                    .seed = 1,
                                    .update = update});
    for (const double v : out.to_doubles()) all.push_back((v - below) / (above - below));
  }
  return all;
}

TEST_CASE("neighbours, and updates that follow each other, are rounded independently") {
  for (const auto& [elements, updates] : {std::pair<int64_t, uint32_t>{100'000, 1}, {16, 5'000}}) {
    const Values draws = roundings(1 + 0x1p-8f, elements, updates);  // half way
    const double n = static_cast<double>(draws.size());
    for (const size_t distance : {1, 2, 7, 8, 16, 32}) {
      double together = 0;
      for (size_t i = distance; i < draws.size(); ++i) {
        together += (draws[i] - 0.5) * (draws[i - distance] - 0.5);
      }
      CAPTURE(distance);
      CHECK(std::abs(together / n) < 5 * 0.25 / std::sqrt(n));
    }
  }
}

}  // namespace
}  // namespace fsdp::test
