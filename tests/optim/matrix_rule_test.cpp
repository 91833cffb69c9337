// A rule of whole matrices beside AdamW: the same bits on 1 to 4 ranks, whose shards cut matrices
// anywhere and leave ranks without a piece; against the formula in double; what it keeps, and the
// memory of its gathers. Under every strategy: tests/comm/fsdp/whole_matrices_test.cpp.
#include "optim/matrix_rule.h"

#include <cmath>
#include <map>
#include <mutex>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "kernels/cpu/cpu_backend.h"
#include "optim/optimizer.h"
#include "tests/support/flat_unit.h"
#include "tests/support/orthogonal_rule.h"
#include "tests/support/temp_folder.h"

namespace fsdp::optim {
namespace {

using Doubles = std::vector<double>;
using test::FlatUnit;

constexpr double kRate = 0.1;
constexpr size_t kVector = 1, kTable = 3;  // what AdamW steps

// Matrices of 7 x 5, 3 x 64 and 50 x 3.
const std::vector<FlatUnit::Member> kMembers = {{35, true, 5},
                                                {9, false},
                                                {192, true, 64},
                                                {44, true, 4, ParameterRole::kEmbedding},
                                                {150, true, 3}};

struct Case {
  int ranks = 1;
  bool matrices = true;
  DType master = DType::kF32;
  OptimizerOptions options = {.weight_decay = 0.1};
  uint32_t steps = 3;
};

struct Result {
  std::vector<Doubles> masters;          // by parameter
  std::map<std::string, Doubles> state;  // by parameter and name
  size_t gathered = 0;                   // bytes at the most, on any rank
  bool operator==(const Result& other) const {
    return masters == other.masters && state == other.state;
  }
};

Doubles gradient(size_t parameter, uint32_t step) {
  return test::random_values(kMembers[parameter].numel, 100 * step + parameter);
}

void run_rank(comm::Communicator& world, const Case& c, Result& result, std::mutex& mutex) {
  cpu::CpuBackend backend;
  const FlatUnit unit(kMembers, c.ranks, 8);
  const DType wide = accumulation_dtype(c.master);
  const OptimizerShard shard = unit.shard(backend, world.rank(), c.master, wide);
  for (int p = 0; p < 5; ++p) {
    const auto seed = static_cast<uint64_t>(p);
    unit.write(shard, shard.master, p, test::random_values(kMembers[size_t(p)].numel, seed));
  }
  WholeMatrices matrices = {.group = &world};
  if (c.matrices) matrices.rule = std::make_shared<test::OrthogonalRule>();
  Optimizer optimizer({shard}, c.options, matrices);
  const Tensor one = test::make_tensor(backend, Shape{}, wide, {1});
  const Tensor skip = Tensor::zeros(backend, Shape{}, DType::kI32);
  backend.ledger().reset_peak();
  for (uint32_t step = 1; step <= c.steps; ++step) {
    for (int p = 0; p < 5; ++p) unit.write(shard, shard.gradient, p, gradient(size_t(p), step));
    optimizer.step(kRate, one, skip, step);
  }
  backend.synchronize(backend.compute_stream());
  const std::lock_guard lock(mutex);
  for (int p = 0; p < 5; ++p) unit.read(shard, shard.master, p, result.masters[size_t(p)]);
  optimizer.visit_state([&](const StatePart& part) {
    Doubles& all = result.state[part.parameter.name() + "/" + std::string(part.name)];
    const bool scalar = part.values.shape().rank() == 0;
    all.resize(static_cast<size_t>(scalar ? 1 : part.parameter.numel()), NAN);
    const Doubles values = part.values.to_doubles();
    std::copy(values.begin(), values.end(), all.begin() + part.first);
  });
  const auto category = static_cast<size_t>(MemoryCategory::kCommunication);
  result.gathered = std::max(result.gathered, backend.ledger().usage().peak[category]);
}

Result run(const Case& c) {
  Result result;
  for (const FlatUnit::Member& member : kMembers) {
    result.masters.emplace_back(static_cast<size_t>(member.numel), NAN);
  }
  std::mutex mutex;
  comm::run_local_ranks(c.ranks,
                        [&](comm::Communicator& world) { run_rank(world, c, result, mutex); });
  return result;
}

OptimizerOptions narrow() {
  return {.state_dtype = DType::kBF16, .rounds_masters_by_chance = true, .rounding_seed = 3};
}

TEST_CASE("whole matrices: the same bits on 1, 2, 3 and 4 ranks, AdamW for the rest") {
  for (const Case& c : {Case{.master = DType::kF32}, Case{.master = DType::kF64},
                        Case{.master = DType::kBF16, .options = narrow()}}) {
    CAPTURE(name_of(c.master));
    Case one = c, plain = c;
    const Result expected = run(one);
    for (const int ranks : {2, 3, 4}) {
      CAPTURE(ranks);
      Case several = c;
      several.ranks = ranks;
      CHECK((run(several) == expected));
    }
    plain.matrices = false;
    const Result adamw = run(plain);
    for (size_t p = 0; p < kMembers.size(); ++p) {
      CAPTURE(p);
      CHECK((adamw.masters[p] == expected.masters[p]) == (p == kVector || p == kTable));
    }
  }
}

TEST_CASE("whole matrices: each rule's state has its names") {
  const Result result = run({.ranks = 3});
  std::string names;
  for (const auto& [name, values] : result.state) {
    names += name + " ";
    for (const double value : values) CHECK(!std::isnan(value));
  }
  CHECK(names ==
        "p0/momentum_buffer p0/step p1/exp_avg p1/exp_avg_sq p1/step p2/momentum_buffer p2/step "
        "p3/exp_avg p3/exp_avg_sq p3/step p4/momentum_buffer p4/step ");
}

// The direction of the first step, row by row, in double.
Doubles orthogonal(const Doubles& g, size_t columns) {
  const size_t rows = g.size() / columns;
  double squares = 0;
  for (const double v : g) squares += v * v;
  Doubles x = g, out(g.size());
  for (double& v : x) v /= std::sqrt(squares);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) {
      double cube = 0;
      for (size_t k = 0; k < rows; ++k) {
        double product = 0;
        for (size_t l = 0; l < columns; ++l) product += x[i * columns + l] * x[k * columns + l];
        cube += product * x[k * columns + j];
      }
      out[i * columns + j] = 1.5 * x[i * columns + j] - 0.5 * cube;
    }
  }
  return out;
}

TEST_CASE("whole matrices: the step is that of the formula") {
  const Result result = run({.ranks = 3, .master = DType::kF64, .steps = 1});
  for (const size_t p : {0, 2, 4}) {
    const Doubles before = test::random_values(kMembers[p].numel, p);
    const Doubles y = orthogonal(gradient(p, 1), static_cast<size_t>(kMembers[p].columns));
    for (size_t i = 0; i < before.size(); ++i) {
      const double expected = before[i] - kRate * (y[i] + 0.1 * before[i]);
      CHECK(result.masters[p][i] == doctest::Approx(expected).epsilon(1e-6));
    }
  }
}

TEST_CASE("whole matrices: memory of gathers is that of the largest matrix, on any ranks") {
  for (const int ranks : {1, 2, 4}) CHECK(run({.ranks = ranks}).gathered == 1024);  // of 768 bytes
}

TEST_CASE("whole matrices: masters elsewhere than the collectives are refused") {
  cpu::CpuBackend backend, other;
  const FlatUnit unit(kMembers, 1);
  CHECK(test::error_of([&] {
          Optimizer({unit.shard(backend, 0, DType::kF32, DType::kF32)}, {},
                    {.rule = std::make_shared<test::OrthogonalRule>(), .collectives = &other});
        }) ==
        "[optimizer] a rule of whole matrices: expected the masters on the backend of the "
        "collectives, not offloaded");
}

}  // namespace
}  // namespace fsdp::optim
