// Every optimizer over shards against five steps of PyTorch's, in f64, f32 and with bf16 gradients:
// ordinary numbers, zeros, huge and tiny ones, changing rates, absent gradients. Then what all have
// in common: skips, decay flags, step counters, state that can be read and written by parameter,
// and shards that lie on another backend than the one that computes.
// The values: tests/fixtures/adamw.{json,safetensors}.
// Requirements: S2.8.
#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "core/io/safetensors.h"
#include "kernels/cpu/cpu_backend.h"
#include "optim/clip.h"
#include "optim/optimizer_kind.h"
#include "tests/support/flat_unit.h"
#include "tests/support/temp_folder.h"

namespace fsdp::optim {
namespace {

using Doubles = std::vector<double>;
using test::FlatUnit;

constexpr int64_t kSize = 24;  // elements of the fixture's one parameter
constexpr int64_t kSteps = 5;
constexpr double kPadding = 77;

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

struct Control {  // scalars of a step on the device
  Control(Backend& backend, DType master)
      : coefficient(test::make_tensor(backend, Shape{}, master, {1})),
        skip(Tensor::zeros(backend, Shape{}, DType::kI32)) {}
  Tensor coefficient, skip;
};

// What the optimizer keeps, by the state's name, then by the parameter's.
using State = std::map<std::string, std::map<std::string, Doubles>>;
State state_of(Optimizer& optimizer) {
  State out;
  optimizer.visit_state([&](const StatePart& part) {
    Doubles& all = out[std::string(part.name)][part.parameter.name()];
    const bool scalar = part.values.shape().rank() == 0;
    all.resize(static_cast<size_t>(scalar ? 1 : part.parameter.numel()), NAN);
    const Doubles values = part.values.to_doubles();
    std::copy(values.begin(), values.end(), all.begin() + part.first);
  });
  return out;
}

// ---------------------------------------------------------------------------- PyTorch's steps

// The fixture's parameter behind one of three elements that has no gradient, in three shards: 8 of
// its elements in the first one, 16 in the second, none in the last, and gaps.
class Shards {
 public:
  static constexpr int kParameter = 1;

  Shards(Backend& backend, const Precision& precision, const Doubles& start) {
    for (int i = 0; i < 3; ++i) {
      OptimizerShard shard =
          unit_.shard(backend, i, precision.master, precision.gradient, kPadding);
      if (precision.gradient == DType::kBF16) {
        shard.copy = test::make_tensor(backend, shard.master.shape(), DType::kBF16,
                                       shard.master.to_doubles());
      }
      shards_.push_back(shard);
    }
    put(start, &OptimizerShard::master);
  }

  const std::vector<OptimizerShard>& list() const { return shards_; }
  const std::string& name() const { return unit_.parameter(kParameter).name(); }
  void put(const Doubles& values, Tensor OptimizerShard::*field) {
    for (const OptimizerShard& shard : shards_) {
      unit_.write(shard, shard.*field, kParameter, values);
    }
  }
  Doubles get(Tensor OptimizerShard::*field) const {
    Doubles out(kSize);
    for (const OptimizerShard& shard : shards_) unit_.read(shard, shard.*field, kParameter, out);
    return out;
  }
  void set_present(bool present) {
    const std::vector<int32_t> flags = {0, present ? 1 : 0};
    for (const OptimizerShard& shard : shards_) shard.present.write(flags.data());
  }
  // All elements of a field but the parameter's own are as they were.
  void check_rest(Tensor OptimizerShard::*field) const {
    int64_t kept = 0;
    for (const OptimizerShard& shard : shards_) {
      const Doubles values = (shard.*field).to_doubles();
      kept += std::count(values.begin(), values.end(), kPadding);
    }
    CHECK(kept == unit_.layout().numel() - kSize);
  }

 private:
  FlatUnit unit_{{{3}, {kSize}}, 3, 8};
  std::vector<OptimizerShard> shards_;
};

// |got - expected| <= tolerance * scale, element by element; infinities must agree.
void check_close(const Doubles& got, const Doubles& expected, double tolerance,
                 const Doubles& scale) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    if (!std::isfinite(expected[i])) {
      CHECK(got[i] == expected[i]);
    } else {
      CHECK(std::abs(got[i] - expected[i]) <= tolerance * std::abs(scale[i]));
    }
  }
}

OptimizerOptions options_of(const Json& config) {
  const Json& options = config["options"];
  OptimizerOptions out;
  for (const OptimizerKind kind : kOptimizerKinds) {
    if (config["kind"] == name_of(kind)) out.kind = kind;
  }
  CHECK(config["kind"] == name_of(out.kind));
  const Json betas = options.value("betas", Json{0.9, 0.999});
  out.beta1 = betas[0];
  out.beta2 = betas[1];
  out.epsilon = options.value("eps", 1e-8);
  const double decay = out.kind == OptimizerKind::kAdamW ? 0.01 : 0.0;  // PyTorch's defaults
  out.weight_decay = options.value("weight_decay", decay);
  out.momentum = options.value("momentum", 0.0);
  out.dampening = options.value("dampening", 0.0);
  out.nesterov = options.value("nesterov", false);
  return out;
}

void check_config(const Fixture& fixture, const Json& config, const Precision& precision) {
  cpu::CpuBackend backend;
  const auto prefix = fmt::format("{}.{}.", config["name"].get<std::string>(), precision.name);
  Shards shards(backend, precision, fixture.row(prefix + "param", 0));
  const OptimizerOptions options = options_of(config);
  const auto optimizer = make_optimizer(shards.list(), options);
  const Control control(backend, precision.master);
  const std::string gradient = fmt::format("grad.{}", name_of(precision.gradient));
  const double added_decay = options.kind == OptimizerKind::kAdamW ? 0 : options.weight_decay;
  Doubles largest(kSize, 0.0);  // terms of the sums that the state holds, which may cancel
  for (int64_t step = 0; step < kSteps; ++step) {
    CAPTURE(step);
    const Json& absent = config["absent_steps"];
    const bool present = std::find(absent.begin(), absent.end(), step) == absent.end();
    const Doubles g = fixture.row(gradient, step);
    shards.put(g, &OptimizerShard::gradient);
    shards.set_present(present);
    const Json& rates = config["lr_per_step"];
    optimizer->step(rates.empty() ? config["options"]["lr"] : rates[static_cast<size_t>(step)],
                    control.coefficient, control.skip, 1);
    const Doubles before = fixture.row(prefix + "param", step);
    for (size_t i = 0; i < g.size() && present; ++i) {
      largest[i] = std::max(largest[i], std::abs(g[i]) + added_decay * std::abs(before[i]));
    }
    const Doubles param = fixture.row(prefix + "param", step + 1);
    check_close(shards.get(&OptimizerShard::master), param, precision.tolerance, param);
    const State state = state_of(*optimizer);
    for (const std::string_view name : state_names(options)) {
      const Doubles expected = fixture.row(prefix + std::string(name), step);
      check_close(state.at(std::string(name)).at(shards.name()), expected, precision.tolerance,
                  name == "exp_avg_sq" ? expected : largest);
    }
    if (shards.list()[0].copy.defined() && present) {
      CHECK(shards.get(&OptimizerShard::copy) ==
            test::rounded(shards.get(&OptimizerShard::master), DType::kBF16));
      shards.check_rest(&OptimizerShard::copy);
    }
  }
  shards.check_rest(&OptimizerShard::master);
}

TEST_CASE("optimizer: five steps of PyTorch's in all twelve configurations and every precision") {
  const Fixture fixture;
  CHECK(fixture.json["configs"].size() == 12);
  for (const Json& config : fixture.json["configs"]) {
    for (const Precision& precision : {Precision{"f64", DType::kF64, DType::kF64, 1e-12},
                                       Precision{"f32", DType::kF32, DType::kF32, 1e-6},
                                       Precision{"mixed", DType::kF32, DType::kBF16, 1e-6}}) {
      CAPTURE(config["name"].get<std::string>());
      CAPTURE(precision.name);
      check_config(fixture, config, precision);
    }
  }
}

// ---------------------------------------------------------------------------- Own rules

const OptimizerOptions kEvery[] = {
    {},
    {.kind = OptimizerKind::kAdam},
    {.kind = OptimizerKind::kAdamax},
    {.kind = OptimizerKind::kAdadelta, .epsilon = 1e-6},
    {.kind = OptimizerKind::kSgd},
    {.kind = OptimizerKind::kSgd, .weight_decay = 0.01, .momentum = 0.9, .dampening = 0.1}};

// Two parameters: 5 elements with decay, 3 without.
struct Rig {
  cpu::CpuBackend backend;
  FlatUnit unit{{{5, true}, {3, false}}, 1, 8};
  OptimizerShard shard = unit.shard(backend, 0, DType::kF64, DType::kF64);
  Control control{backend, DType::kF64};

  Rig() {
    for (int p = 0; p < 2; ++p) {
      const int64_t numel = unit.parameter(static_cast<size_t>(p)).numel();
      unit.write(shard, shard.master, p, test::random_values(numel, 1 + static_cast<uint64_t>(p)));
      unit.write(shard, shard.gradient, p,
                 test::random_values(numel, 3 + static_cast<uint64_t>(p)));
    }
  }
  void set_present(std::vector<int32_t> flags) { shard.present.write(flags.data()); }
  Doubles values(int parameter) const {
    Doubles out(static_cast<size_t>(unit.parameter(static_cast<size_t>(parameter)).numel()));
    unit.read(shard, shard.master, parameter, out);
    return out;
  }
  void step(Optimizer& optimizer) { optimizer.step(0.1, control.coefficient, control.skip, 1); }
};

TEST_CASE("optimizer: an absent parameter stands still, and its t with it") {
  for (const OptimizerOptions& options : kEvery) {
    CAPTURE(name_of(options.kind));
    Rig rig;
    const auto optimizer = make_optimizer({rig.shard}, options);
    rig.step(*optimizer);
    const Doubles first = rig.values(0), second = rig.values(1);
    State before = state_of(*optimizer);
    rig.set_present({1, 0});
    rig.step(*optimizer);
    State after = state_of(*optimizer);
    CHECK(after["step"]["p0"] == Doubles{2});
    CHECK(rig.values(0) != first);
    CHECK(rig.values(1) == second);
    for (const auto& [name, by_parameter] : before)
      CHECK(after[name]["p1"] == by_parameter.at("p1"));
    rig.set_present({0, 1});
    rig.step(*optimizer);
    CHECK(state_of(*optimizer)["step"]["p1"] == Doubles{2});
    CHECK(rig.values(1) != second);
  }
}

TEST_CASE("optimizer: the coefficient multiplies the gradients") {
  for (const OptimizerOptions& options : kEvery) {
    CAPTURE(name_of(options.kind));
    Rig rig, scaled;
    scaled.control.coefficient = test::make_tensor(scaled.backend, Shape{}, DType::kF64, {0.25});
    Doubles quarter = rig.shard.gradient.to_doubles();
    for (double& g : quarter) g *= 0.25;
    rig.shard.gradient.write(quarter.data());
    for (Rig* r : {&rig, &scaled}) r->step(*make_optimizer({r->shard}, options));
    CHECK(rig.shard.master.to_doubles() == scaled.shard.master.to_doubles());
  }
}

// ---------------------------------------------------------------------------- State

// Three parameters in so many shards, stepped with gradients that depend on the step only.
struct Run {
  static constexpr int64_t kNumel[] = {37, 5, 100};
  cpu::CpuBackend backend;
  FlatUnit unit;
  std::vector<OptimizerShard> shards;
  Control control{backend, DType::kF32};
  std::unique_ptr<Optimizer> optimizer;

  Run(int count, const OptimizerOptions& options) : unit({{37}, {5, false}, {100}}, count, 8) {
    for (int i = 0; i < count; ++i) {
      shards.push_back(unit.shard(backend, i, DType::kF32, DType::kF32, kPadding));
    }
    put(&OptimizerShard::master, 1);
    optimizer = make_optimizer(shards, options);
  }
  void put(Tensor OptimizerShard::*field, uint64_t seed) {
    for (const OptimizerShard& shard : shards) {
      for (int p = 0; p < 3; ++p) {
        unit.write(shard, shard.*field, p,
                   test::random_values(kNumel[p], seed + static_cast<uint64_t>(p)));
      }
    }
  }
  void step(uint64_t number) {
    put(&OptimizerShard::gradient, 100 * number);
    optimizer->step(0.01, control.coefficient, control.skip, 1);
  }
  std::vector<Doubles> masters() const {
    std::vector<Doubles> out;
    for (int p = 0; p < 3; ++p) {
      Doubles& values = out.emplace_back(static_cast<size_t>(kNumel[p]), NAN);
      for (const OptimizerShard& shard : shards) unit.read(shard, shard.master, p, values);
    }
    return out;
  }
};

TEST_CASE("optimizer: a shard is reached one after the other, and updated when it is given back") {
  struct Noted : ShardAccess {
    explicit Noted(std::function<void(bool begins, Use use)> note) : note_(std::move(note)) {}
    void begin(Use use) override { note_(true, use); }
    void end(Use use) override { note_(false, use); }
    std::function<void(bool, Use)> note_;
  };
  Run run(3, {});
  const std::vector<Doubles> before = run.masters();
  std::vector<std::pair<size_t, bool>> told;
  std::vector<std::vector<double>> then;
  for (size_t i = 0; i < run.shards.size(); ++i) {
    OptimizerShard& shard = run.shards[i];
    shard.gradient.write(std::vector<float>(static_cast<size_t>(shard.gradient.numel()), 1).data());
    shard.access = std::make_shared<Noted>([&, i](bool begins, ShardAccess::Use use) {
      CHECK(use == ShardAccess::Use::kUpdate);
      told.emplace_back(i, begins);
      if (!begins) then.push_back(run.shards[i].master.to_doubles());
    });
  }
  run.optimizer = make_optimizer(run.shards, {});
  run.optimizer->step(0.01, run.control.coefficient, run.control.skip, 1);
  CHECK(told == std::vector<std::pair<size_t, bool>>{
                    {0, true}, {0, false}, {1, true}, {1, false}, {2, true}, {2, false}});
  CHECK(run.masters() != before);
  for (size_t i = 0; i < then.size(); ++i) CHECK(then[i] == run.shards[i].master.to_doubles());
}

TEST_CASE("optimizer: state is visited by parameter, every element once") {
  for (const OptimizerOptions& options : kEvery) {
    CAPTURE(name_of(options.kind));
    Run run(3, options);
    std::map<std::string, std::vector<int>> visits;  // of each element
    int counters = 0;
    run.optimizer->visit_state([&](const StatePart& part) {
      if (part.values.shape().rank() == 0) {
        CHECK(part.name == "step");
        CHECK(part.values.dtype() == DType::kI32);
        ++counters;
        return;
      }
      CHECK(part.values.dtype() == DType::kF32);
      std::vector<int>& seen = visits[fmt::format("{} {}", part.parameter.name(), part.name)];
      seen.resize(static_cast<size_t>(part.parameter.numel()));
      REQUIRE(part.first + part.values.numel() <= part.parameter.numel());
      for (int64_t i = 0; i < part.values.numel(); ++i) ++seen[static_cast<size_t>(part.first + i)];
    });
    CHECK(counters == 3 * 3);  // every shard has those of all parameters
    CHECK(visits.size() == 3 * state_names(options).size());
    for (const auto& [name, seen] : visits) {
      CAPTURE(name);
      CHECK(seen == std::vector<int>(seen.size(), 1));
    }
  }
}

TEST_CASE(
    "optimizer: a run goes on, to the bit, from state that was written, however it is sharded") {
  for (const OptimizerOptions& options : kEvery) {
    CAPTURE(name_of(options.kind));
    Run first(3, options), second(2, options);
    for (uint64_t step = 1; step <= 3; ++step) first.step(step);
    State state = state_of(*first.optimizer);
    second.optimizer->visit_state([&](const StatePart& part) {
      const Doubles& all = state.at(std::string(part.name)).at(part.parameter.name());
      const auto from = all.begin() + part.first;
      if (part.values.dtype() == DType::kI32) {
        const auto t = static_cast<int32_t>(*from);
        part.values.write(&t);
      } else {
        part.values.write(std::vector<float>(from, from + part.values.numel()).data());
      }
    });
    const std::vector<Doubles> masters = first.masters();
    for (const OptimizerShard& shard : second.shards) {
      for (int p = 0; p < 3; ++p) {
        second.unit.write(shard, shard.master, p, masters[static_cast<size_t>(p)]);
      }
    }
    for (Run* run : {&first, &second}) run->step(4);
    CHECK(first.masters() != masters);
    CHECK(second.masters() == first.masters());
    CHECK(state_of(*second.optimizer) == state_of(*first.optimizer));
  }
}

// ---------------------------------------------------------------------------- Seams and errors

TEST_CASE("optimizer and clip work where the shards are, without the backend that computes") {
  for (const OptimizerOptions& options : kEvery) {
    CAPTURE(name_of(options.kind));
    cpu::CpuBackend compute;
    const MemoryUsage before = compute.ledger().usage();
    Rig rig;
    Clipper clipper({rig.shard}, nullptr, 0.5);
    const auto optimizer = make_optimizer({rig.shard}, options);
    clipper.measure();
    const Doubles master = rig.shard.master.to_doubles();
    optimizer->step(0.1, clipper.coefficient(), clipper.skip(), 1);
    CHECK(rig.shard.master.to_doubles() != master);
    CHECK(compute.ledger().usage().total_peak == before.total_peak);

    // What lies elsewhere is refused instead of read.
    const Control elsewhere(compute, DType::kF64);
    CHECK(test::error_of([&] { optimizer->step(0.1, elsewhere.coefficient, elsewhere.skip, 1); }) ==
          "[optimizer] coefficient and skip: expected on the backend of the masters");
    const Tensor scale = test::make_tensor(compute, Shape{}, DType::kF32, {1});
    CHECK(test::error_of([&] { clipper.measure(&scale); }) ==
          "[clip] loss scale and overflow: expected them on the backend that decides about the "
          "step");
    OptimizerShard torn = rig.shard;
    torn.name = "torn";
    torn.gradient = test::make_tensor(compute, torn.master.shape(), DType::kF64, master);
    for (const std::string who : {"optimizer", "clip"}) {
      CHECK(test::error_of([&] {
              if (who == "clip") Clipper({rig.shard, torn}, nullptr, 1);
              make_optimizer({rig.shard, torn}, options);
            }) == fmt::format("[{}] torn: expected all its tensors on the backend of unit's master",
                              who));
    }
  }
}

TEST_CASE("optimizer: wrong arguments are named") {
  CHECK(test::error_of([] { make_optimizer({}, {}); }) ==
        "[optimizer] shards: expected at least one");
  Rig rig;
  rig.shard.master = rig.shard.master.slice(0, Shape{3});
  CHECK(test::error_of([&] { make_optimizer({rig.shard}, {}); }) ==
        "[optimizer] unit: master: expected the 16 elements of a shard, got 3");
}

TEST_CASE("optimizer: kinds have the names of their rules, and read the options of these") {
  CHECK(name_of(OptimizerKind::kAdamW) == "adamw");
  CHECK(name_of(kOptimizerKinds.front()) == "adamw");
  CHECK(reads(OptimizerKind::kAdamW, "beta1"));
  CHECK(!reads(OptimizerKind::kSgd, "epsilon"));
  CHECK(kinds_that_read("beta1").starts_with("adamw, adam, adamax"));
  CHECK(kinds_that_read("momentum") == "sgd");
  CHECK(kinds_that_read("none") == "");
}

}  // namespace
}  // namespace fsdp::optim
