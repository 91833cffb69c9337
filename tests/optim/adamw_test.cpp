// AdamW over shards against five steps of torch.optim.AdamW in f64, f32 and with bf16 gradients:
// ordinary numbers, zeros, huge and tiny ones, changing rates, absent gradients; then skips, decay
// flags and step counters. The values: tests/fixtures/adamw.{json,safetensors}.
#include "optim/adamw.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "core/io/json.h"
#include "core/io/safetensors.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"

namespace fsdp::optim {
namespace {

using Doubles = std::vector<double>;

constexpr int64_t kSize = 24;   // elements of the fixture's one parameter
constexpr int64_t kFirst = 10;  // of them in the first shard
constexpr int64_t kGap = 6;     // padding in front of it in each shard
constexpr int64_t kSteps = 5;

struct Precision {
  const char* name;  // of the fixture's tensors
  DType master;
  DType gradient;
  double tolerance;
};

struct Fixture {
  Json json = read_json_file(test::fixture_path("adamw.json"));
  SafetensorsFile file = SafetensorsFile::open(test::fixture_path("adamw.safetensors"));

  Doubles row(const std::string& name, int64_t step) const {
    Doubles values(kSize);
    file.read_elements(name, step * kSize, kSize, DType::kF64, values.data());
    return values;
  }
};

// One parameter of 24 elements in two shards, as two flat units would hold it.
class Shards {
 public:
  Shards(Backend& backend, const Precision& precision, const Doubles& start) {
    present_ = Tensor::zeros(backend, Shape{1}, DType::kI32);
    for (const auto& [begin, end] : {std::pair{int64_t{0}, kFirst}, std::pair{kFirst, kSize}}) {
      const int64_t count = end - begin;
      const Shape shape = {kGap + count};
      const auto padded = [&](DType dtype) {
        return test::make_tensor(backend, shape, dtype,
                                 Doubles(static_cast<size_t>(shape.numel()), 77.0));
      };
      OptimizerShard shard = {.name = "unit",
                              .master = padded(precision.master),
                              .gradient = padded(precision.gradient),
                              .copy = {},
                              .present = present_,
                              .segments = {{.begin = kGap, .end = kGap + count, .decay = true}},
                              .spans = {{kGap, kGap + count}},
                              .parameters = 1};
      if (precision.gradient == DType::kBF16) shard.copy = padded(DType::kBF16);
      shards_.push_back(shard);
    }
    put(start, &OptimizerShard::master);
  }

  const std::vector<OptimizerShard>& list() const { return shards_; }
  void put(const Doubles& values, Tensor OptimizerShard::* field) {
    for (size_t i = 0; i < 2; ++i) {
      const Tensor& target = shards_[i].*field;
      const Doubles part(values.begin() + (i == 0 ? 0 : kFirst),
                         i == 0 ? values.begin() + kFirst : values.end());
      const Shape shape = {static_cast<int64_t>(part.size())};
      const Tensor source = test::make_tensor(target.backend(), shape, target.dtype(), part);
      Backend& backend = target.backend();
      backend.copy(backend.compute_stream(), target.slice(kGap, shape).data(), source.data(),
                   source.bytes());
    }
  }
  // The 24 elements of two shards' tensors; checks that the padding is as it was.
  static Doubles joined(const Tensor& first, const Tensor& second, double padding) {
    Doubles out;
    for (const Tensor* tensor : {&first, &second}) {
      const Doubles values = tensor->to_doubles();
      for (int64_t i = 0; i < kGap; ++i) CHECK(values[static_cast<size_t>(i)] == padding);
      out.insert(out.end(), values.begin() + kGap, values.end());
    }
    return out;
  }
  Doubles masters() const { return joined(shards_[0].master, shards_[1].master, 77); }
  void set_present(bool present) {
    const int32_t flag = present ? 1 : 0;
    present_.write(&flag);
  }

 private:
  Tensor present_;
  std::vector<OptimizerShard> shards_;
};

// |got - expected| <= tolerance * scale, element by element; infinities must agree.
void check_close(const Doubles& got, const Doubles& expected, double tolerance,
                 const Doubles& scale) {
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    if (!std::isfinite(expected[i])) {
      CHECK(got[i] == expected[i]);
    } else {
      CHECK(std::abs(got[i] - expected[i]) <= tolerance * std::abs(scale[i]));
    }
  }
}

struct Control {  // scalars of a step on the device
  Control(Backend& backend, DType master)
      : coefficient(test::make_tensor(backend, Shape{}, master, {1})),
        skip(Tensor::zeros(backend, Shape{}, DType::kI32)) {}
  Tensor coefficient, skip;
};

void check_config(const Fixture& fixture, const Json& config, const Precision& precision) {
  cpu::CpuBackend backend;
  const Json& options = config["options"];
  const auto prefix = fmt::format("{}.{}.", config["name"].get<std::string>(), precision.name);
  Shards shards(backend, precision, fixture.row(prefix + "param", 0));
  const Json betas = options.value("betas", Json{0.9, 0.999});
  AdamW optimizer(shards.list(), {.beta1 = betas[0],
                                  .beta2 = betas[1],
                                  .epsilon = options.value("eps", 1e-8),
                                  .weight_decay = options.value("weight_decay", 0.01)});
  const Control control(backend, precision.master);
  const std::string gradient = fmt::format("grad.{}", name_of(precision.gradient));
  Doubles largest(kSize, 0.0);
  for (int64_t step = 0; step < kSteps; ++step) {
    CAPTURE(step);
    const Json& absent = config["absent_steps"];
    const bool present = std::find(absent.begin(), absent.end(), step) == absent.end();
    const Doubles g = fixture.row(gradient, step);
    shards.put(g, &OptimizerShard::gradient);
    shards.set_present(present);
    const Json& rates = config["lr_per_step"];
    optimizer.step(rates.empty() ? options["lr"] : rates[static_cast<size_t>(step)],
                   control.coefficient, control.skip);
    for (size_t i = 0; i < g.size() && present; ++i) {
      largest[i] = std::max(largest[i], std::abs(g[i]));
    }
    const Doubles param = fixture.row(prefix + "param", step + 1);
    const Doubles square = fixture.row(prefix + "exp_avg_sq", step);
    const auto& state = optimizer.state();
    check_close(shards.masters(), param, precision.tolerance, param);
    check_close(Shards::joined(state[0].exp_avg_sq, state[1].exp_avg_sq, 0), square,
                precision.tolerance, square);
    check_close(Shards::joined(state[0].exp_avg, state[1].exp_avg, 0),
                fixture.row(prefix + "exp_avg", step), precision.tolerance, largest);
    if (shards.list()[0].copy.defined()) {
      const Doubles copy = Shards::joined(shards.list()[0].copy, shards.list()[1].copy, 77);
      if (present) CHECK(copy == test::rounded(shards.masters(), DType::kBF16));
    }
  }
}

TEST_CASE("adamw: five steps of torch.optim.AdamW in every configuration and precision") {
  const Fixture fixture;
  int configs = 0;
  for (const Json& config : fixture.json["configs"]) {
    if (config["kind"] != "adamw") continue;
    ++configs;
    for (const Precision& precision :
         {Precision{"f64", DType::kF64, DType::kF64, 1e-12},
          Precision{"f32", DType::kF32, DType::kF32, 1e-6},
          Precision{"mixed", DType::kF32, DType::kBF16, 1e-6}}) {
      CAPTURE(config["name"].get<std::string>());
      CAPTURE(precision.name);
      check_config(fixture, config, precision);
    }
  }
  CHECK(configs == 6);
}

// ---------------------------------------------------------------------------- Own rules

// Two parameters in one shard: 5 elements with decay, 3 without.
struct Rig {
  cpu::CpuBackend backend;
  OptimizerShard shard = {
      .name = "unit",
      .master = test::random_tensor(backend, Shape{8}, DType::kF64, 1),
      .gradient = test::random_tensor(backend, Shape{8}, DType::kF64, 2),
      .copy = {},
      .present = Tensor::from_host(backend, Shape{2}, std::vector<int32_t>{1, 1}),
      .segments = {{.begin = 0, .end = 5, .decay = true, .parameter = 0},
                   {.begin = 5, .end = 8, .decay = false, .parameter = 1}},
      .spans = {{0, 8}},
      .parameters = 2};
  Control control{backend, DType::kF64};

  void set_present(std::vector<int32_t> flags) { shard.present.write(flags.data()); }
};

TEST_CASE("adamw: decay acts on the parameters that have the flag") {
  Rig rig;
  const Tensor zeros = Tensor::zeros(rig.backend, Shape{8}, DType::kF64);
  rig.shard.gradient = zeros;
  AdamW optimizer({rig.shard}, {.weight_decay = 0.5});
  const Doubles before = rig.shard.master.to_doubles();
  optimizer.step(0.1, rig.control.coefficient, rig.control.skip);
  const Doubles after = rig.shard.master.to_doubles();
  for (size_t i = 0; i < 8; ++i) {
    CHECK(after[i] == doctest::Approx(before[i] * (i < 5 ? 0.95 : 1.0)).epsilon(1e-15));
  }
}

TEST_CASE("adamw: an absent parameter stands still, and its t with it") {
  Rig rig;
  AdamW optimizer({rig.shard}, {});
  const Tensor& counts = optimizer.state()[0].step_counts;
  optimizer.step(0.1, rig.control.coefficient, rig.control.skip);
  const Doubles master = rig.shard.master.to_doubles();
  const Doubles moments = optimizer.state()[0].exp_avg.to_doubles();
  rig.set_present({1, 0});
  optimizer.step(0.1, rig.control.coefficient, rig.control.skip);
  CHECK(counts.to_doubles() == Doubles{2, 1});
  const Doubles after = rig.shard.master.to_doubles();
  for (size_t i = 0; i < 8; ++i) CHECK((after[i] == master[i]) == (i >= 5));
  const Doubles later = optimizer.state()[0].exp_avg.to_doubles();
  for (size_t i = 5; i < 8; ++i) CHECK(later[i] == moments[i]);
  rig.set_present({0, 1});
  optimizer.step(0.1, rig.control.coefficient, rig.control.skip);
  CHECK(counts.to_doubles() == Doubles{2, 2});
}

TEST_CASE("adamw: skip makes the whole step a no-op") {
  Rig rig;
  AdamW optimizer({rig.shard}, {});
  optimizer.step(0.1, rig.control.coefficient, rig.control.skip);
  const auto all = [&] {
    const AdamW::State& s = optimizer.state()[0];
    return std::vector<Doubles>{rig.shard.master.to_doubles(), s.exp_avg.to_doubles(),
                                s.exp_avg_sq.to_doubles(), s.step_counts.to_doubles()};
  };
  const std::vector<Doubles> before = all();
  const int32_t yes = 1;
  rig.control.skip.write(&yes);
  optimizer.step(0.1, rig.control.coefficient, rig.control.skip);
  CHECK(all() == before);
}

TEST_CASE("adamw: the coefficient multiplies the gradients") {
  Rig rig, scaled;
  scaled.control.coefficient = test::make_tensor(scaled.backend, Shape{}, DType::kF64, {0.25});
  Doubles quarter = rig.shard.gradient.to_doubles();
  for (double& g : quarter) g *= 0.25;
  rig.shard.gradient = test::make_tensor(rig.backend, Shape{8}, DType::kF64, quarter);
  for (Rig* r : {&rig, &scaled}) {
    AdamW optimizer({r->shard}, {});
    optimizer.step(0.1, r->control.coefficient, r->control.skip);
  }
  CHECK(rig.shard.master.to_doubles() == scaled.shard.master.to_doubles());
}

TEST_CASE("adamw: state is two moments per element and a counter per parameter") {
  Rig rig;
  const auto state_bytes = [&] {
    return rig.backend.ledger().usage().current[static_cast<size_t>(
        MemoryCategory::kOptimizerState)];
  };
  const size_t before = state_bytes();
  const AdamW optimizer({rig.shard}, {});
  CHECK(state_bytes() - before == 4 * 512);  // the fourth: the learning rate
  CHECK(test::error_of([] { AdamW({}, {}); }) == "[adamw] shards: expected at least one");
}

}  // namespace
}  // namespace fsdp::optim
