// The checks of the header, each against a run on one rank, an undisturbed run, or a formula.
#include "tests/support/world_checks.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <numeric>

#include <doctest/doctest.h>

#include "optim/loss_scaler.h"
#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"
#include "tests/support/unit_sizes.h"

namespace fsdp::test {
namespace {

RunSpec spec(comm::Communicator& world) {
  RunSpec s;
  s.ranks = world.size();
  s.rows = 24;  // dealt to 1, 2, 3, 4 or 8 ranks
  s.training = true;
  return s;
}

comm::FsdpOptions in_f64(comm::Strategy strategy) {
  return {.strategy = strategy, .param_dtype = DType::kF64, .reduce_dtype = DType::kF64};
}

// Every strategy that this many ranks can have.
std::vector<comm::FsdpOptions> strategies(int ranks) {
  using enum comm::Strategy;
  std::vector<comm::FsdpOptions> out;
  for (const comm::Strategy strategy : {kFullShard, kShardGradOp, kShardOptimizer, kNoShard}) {
    out.push_back(in_f64(strategy));
  }
  for (const comm::Strategy strategy : {kHybridShard, kHybridShardZero2}) {
    if (ranks % 2 != 0 || ranks == 2) continue;
    out.push_back(in_f64(strategy));
    out.back().shard_size = 2;
  }
  return out;
}

// The same on one rank, without a second transport.
RunResult alone(RunSpec s) {
  s.ranks = 1;
  return train(s);
}

// Not a number between the parameters' gradients and behind them: whoever counts it is found out.
void poison_padding(comm::FullySharded& sharded) {
  for (const auto& unit : sharded.units()) {
    Tensor shard = unit->gradients->shard();
    const std::vector<double> values = shard.to_doubles();
    std::vector<double> poisoned(values.size(), std::numeric_limits<double>::quiet_NaN());
    const FlatLayout& layout = unit->parameters.trainable()->layout;
    for (const ShardPiece& piece : layout.pieces(sharded.mesh().shard_index())) {
      std::copy_n(values.begin() + piece.shard_begin, piece.count,
                  poisoned.begin() + piece.shard_begin);
    }
    shard.write(poisoned.data());
  }
}

// Of gathers and reductions, with the unit: "Groot G0 R0".
std::string issue_order(const std::vector<TraceEvent>& events) {
  const std::map<std::string, std::string> letters = {
      {"all_gather", "G"}, {"reduce_scatter", "R"}, {"all_reduce", "A"}};
  std::string text;
  for (const TraceEvent& e : events) {
    if (e.lane == "compute" || !letters.contains(e.name)) continue;
    text += (text.empty() ? "" : " ") + letters.at(e.name) + e.scope.substr(e.scope.rfind('.') + 1);
  }
  return text;
}

// Holds back the tasks of all streams; gives up after a while, so that a host that waits for them
// goes on.
class Gate {
 public:
  cpu::CpuOptions options() {
    cpu::CpuOptions o;
    o.delay = [this](const std::string&, std::string_view) {
      std::unique_lock lock(mutex_);
      const bool opened =
          changed_.wait_for(lock, std::chrono::seconds(10), [&] { return open_ || gave_up_; });
      if (!opened) gave_up_ = true;
      return 0;
    };
    return o;
  }
  void set_open(bool open) {
    const std::scoped_lock lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }
  bool gave_up() {
    const std::scoped_lock lock(mutex_);
    return gave_up_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true, gave_up_ = false;
};

double norm(const NamedValues& gradients, double power) {
  double sum = 0, largest = 0;
  for (const auto& [name, values] : gradients) {
    for (const double g : values) {
      sum += std::pow(std::abs(g), power);
      largest = std::max(largest, std::abs(g));
    }
  }
  return std::isinf(power) ? largest : std::pow(sum, 1 / power);
}

}  // namespace

void check_delays(comm::Communicator& world) {
  RunSpec s = spec(world);
  const RunResult expected = train_on(world, s);
  s.cpu = [](int rank) { return random_delays(static_cast<uint64_t>(rank) + 1, 1000); };
  for (const bool release_arena : {false, true}) {
    CAPTURE(release_arena);
    s.fsdp.release_arena = release_arena;
    CHECK((train_on(world, s) == expected));
  }
}

void check_collectives(comm::Communicator& world) {
  using comm::Collective;
  constexpr int64_t kBytes = sizeof(double);
  const auto check = [](const comm::CollectiveCount& got, int64_t calls, int64_t bytes) {
    CHECK(got.calls == calls);
    CHECK(got.bytes == bytes);
  };
  for (const comm::FsdpOptions& options : strategies(world.size())) {
    CAPTURE(choice_name(options.strategy));
    RunSpec s = spec(world);
    s.fsdp = options;
    RankRun run(world, s);
    run.step(0);
    run.wait();
    const comm::Mesh& mesh = run.sharded().mesh();
    const std::vector<int64_t> numels = unit_numels(run.module(), mesh.shards());
    const auto units = static_cast<int64_t>(numels.size());
    const int64_t all = std::accumulate(numels.begin(), numels.end(), int64_t{0});
    // Blocks are gathered for forward and for backward, unless they stay; the root always does.
    const bool twice = !run.sharded().units()[0]->policy.keeps_parameters();
    const bool sharded = mesh.shards() > 1, replicated = mesh.replicas() > 1;
    CAPTURE("gathers");
    check(mesh.gather().count(Collective::kAllGather), sharded * (twice ? 2 * units - 1 : units),
          sharded * (twice ? 2 * all - numels[0] : all) * kBytes);
    CAPTURE("reduce-scatters, then all-reduces across replicas");
    check(mesh.reduce().count(Collective::kReduceScatter), sharded * units, sharded * all * kBytes);
    check(mesh.across_replicas().count(Collective::kAllReduce), replicated * units,
          replicated * all / mesh.shards() * kBytes);
  }
}

void check_accumulation(comm::Communicator& world) {
  using enum comm::Accumulation;
  RunSpec s = spec(world);
  s.rows = 48;
  s.training = false;  // dropout follows the micro-step
  s.fsdp = in_f64(comm::Strategy::kFullShard);
  const RunResult expected = alone(s);  // the big batch
  for (const auto accumulation : {kReduceEach, kReduceScatterEach, kReduceLast}) {
    for (const comm::FsdpOptions& options : strategies(world.size())) {
      CAPTURE(static_cast<int>(accumulation));
      CAPTURE(choice_name(options.strategy));
      s.fsdp = options;
      s.fsdp.micro_steps = 2;
      s.fsdp.accumulation = accumulation;
      const RunResult result = train_on(world, s);
      CHECK(loss_difference(result, expected) <= 1e-12);
      CHECK(norm_difference(result, expected) <= 1e-12);
      CHECK(largest_difference(result.parameters, expected.parameters) <= 1e-10);
    }
  }
}

namespace {

// Steps with a loss scale, of which some overflow on the last rank; this rank's parameters after
// each.
std::vector<std::vector<double>> scaled_steps(comm::Communicator& world,
                                              const comm::FsdpOptions& options, double scale,
                                              const std::vector<bool>& overflows) {
  RunSpec s = spec(world);
  s.fsdp = options;
  s.fsdp.detect_overflow = true;
  s.loss_scale = optim::LossScalerOptions::torch();
  s.loss_scale.initial = scale;
  RankRun run(world, s);
  comm::FullySharded& sharded = run.sharded();
  std::vector<std::vector<double>> parameters;
  for (const bool overflow : overflows) {
    const bool here = overflow && world.rank() == world.size() - 1;
    run.gradient_factor = here ? std::numeric_limits<double>::infinity() : scale;
    run.forward_backward(0);
    CHECK(sharded.overflow().item() == (overflow ? 1 : 0));
    run.update();
    if (overflow) scale /= 2;
    CHECK(run.steps().loss_scale()->item() == scale);
    parameters.emplace_back();
    for (const auto& unit : sharded.units()) {
      const std::vector<double> own = unit->parameters.trainable()->master.to_doubles();
      parameters.back().insert(parameters.back().end(), own.begin(), own.end());
    }
  }
  return parameters;
}

}  // namespace

void check_overflow_on_one_rank(comm::Communicator& world) {
  for (const comm::FsdpOptions& options : strategies(world.size())) {
    CAPTURE(choice_name(options.strategy));
    const auto skipped = scaled_steps(world, options, 1024, {false, true, false});
    CHECK(skipped[1] == skipped[0]);
    // As if that step had never been: neither moments nor step counters moved.
    const auto without = scaled_steps(world, options, 1024, {false, false});
    CHECK(skipped[0] == without[0]);
    CHECK(skipped[2] == without[1]);
    CHECK_FALSE(without[1] == without[0]);
  }
}

void check_norms(comm::Communicator& world) {
  RunSpec s = spec(world);
  s.steps = 1;
  s.keep_gradients = true;
  s.fsdp = in_f64(comm::Strategy::kFullShard);
  const NamedValues gradients = alone(s).gradients;  // one copy of every parameter
  for (const bool fixed_order : {false, true}) {
    for (comm::FsdpOptions options : strategies(world.size())) {
      CAPTURE(choice_name(options.strategy));
      CAPTURE(fixed_order);
      options.fixed_order = fixed_order;
      s.fsdp = options;
      RankRun run(world, s);
      run.forward_backward(0);
      poison_padding(run.sharded());
      for (const double power : {1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
        CAPTURE(power);
        optim::Clipper clipper(run.sharded().optimizer_shards(), &run.sharded().mesh().scalars(), 1,
                               power);
        clipper.measure();
        const double expected = norm(gradients, power);
        CHECK(std::abs(clipper.norm().item() - expected) <= 1e-10 * expected);
      }
    }
  }
}

// Where gradients are kept whole they add up on every rank, as they do on one; else the backward of
// the first pass leaves its part in the shards when the arena is full, and sums have another order.
void check_several_forwards(comm::Communicator& world) {
  RunSpec s = spec(world);
  s.rows = 48;
  s.forwards = 2;
  s.fsdp = in_f64(comm::Strategy::kFullShard);
  s.fsdp.fixed_order = true;
  const RunResult expected = train_as_one_rank(s);
  for (comm::FsdpOptions options : strategies(world.size())) {
    CAPTURE(choice_name(options.strategy));
    options.fixed_order = true;
    s.fsdp = options;
    const RunResult result = train_on(world, s);
    const comm::GroupSizes groups = comm::group_sizes(options, world.size());
    if (comm::unit_policy(options, groups, true).keeps_gradients()) {
      CHECK((result == expected));
    } else {
      CHECK(loss_difference(result, expected) <= 1e-12);
      CHECK(largest_difference(result.parameters, expected.parameters) <= 1e-10);
    }
  }
}

// Gathers (G), reduce-scatters (R) and all-reduces across replicas (A) as the host issues them.
void check_issue_order(comm::Communicator& world) {
  using enum comm::Strategy;
  const std::map<comm::Strategy, std::string> orders = {
      {kFullShard, "Groot G0 G1 G2 G2 G1 R2 G0 R1 R0 Rroot"},
      {kShardGradOp, "Groot G0 G1 G2 R2 R1 R0 Rroot"},
      {kShardOptimizer, "Groot G0 G1 G2 R2 R1 R0 Rroot"},
      {kNoShard, "A2 A1 A0 Aroot"},
      {kHybridShard, "Groot G0 G1 G2 G2 G1 R2 A2 G0 R1 A1 R0 A0 Rroot Aroot"},
      {kHybridShardZero2, "Groot G0 G1 G2 R2 A2 R1 A1 R0 A0 Rroot Aroot"}};
  for (const comm::FsdpOptions& options : strategies(world.size())) {
    CAPTURE(choice_name(options.strategy));
    RunSpec s = spec(world);
    s.fsdp = options;
    RankRun run(world, s);
    run.step(0);  // shows the order of the units
    const std::string issued = issue_order(run.traced_step(1));
    CHECK(issued == (world.size() == 1 ? "" : orders.at(options.strategy)));
  }
}

// No stream runs anything until the host has issued the whole step, clipping and optimizer
// included.
void check_host_runs_ahead(comm::Communicator& world) {
  for (const comm::FsdpOptions& options : strategies(world.size())) {
    for (const bool release_arena : {false, true}) {
      CAPTURE(choice_name(options.strategy));
      CAPTURE(release_arena);
      RunSpec s = spec(world);
      s.fsdp = options;
      s.fsdp.release_arena = release_arena;
      s.fsdp.detect_overflow = true;
      Gate gate;
      s.cpu = [&](int) { return gate.options(); };
      RankRun run(world, s);
      run.step(0);  // in which hosts compare the order of collectives
      run.wait();
      gate.set_open(false);
      run.step(1);
      gate.set_open(true);
      run.wait();
      CHECK_FALSE(gate.gave_up());
    }
  }
}

void check_evaluation(comm::Communicator& world) {
  std::vector<comm::FsdpOptions> all = strategies(world.size());
  if (world.size() == 4) {
    all.push_back(in_f64(comm::Strategy::kFullShard));
    all.back().reshard_group_size = 2;
  }
  for (const comm::FsdpOptions& options : all) {
    CAPTURE(choice_name(options.strategy));
    CAPTURE(options.reshard_group_size);
    RunSpec s = spec(world);
    s.fsdp = options;
    const RunResult expected = train_on(world, s);
    s.before_step = evaluate_between_steps;
    CHECK((train_on(world, s) == expected));
  }
}

void check_frozen_and_unused(comm::Communicator& world) {
  // Block 1 has nothing to train; block 0 is not used in step 1; the head is tied.
  const auto order = [](const Pass& pass) {
    return pass.step == 1 ? std::vector<int>{1, 2} : std::vector<int>{0, 1, 2};
  };
  RunSpec s = spec(world);
  s.subject = block_list(small_gpt2(), order);
  s.frozen = [](const Parameter& p) { return p.name().starts_with("blocks.1."); };
  for (const comm::Strategy strategy : {comm::Strategy::kFullShard, comm::Strategy::kNoShard}) {
    s.fsdp = in_f64(strategy);
    CAPTURE(choice_name(strategy));
    const RunResult expected = alone(s), result = train_on(world, s);
    CHECK(loss_difference(result, expected) <= 1e-12);
    CHECK(largest_difference(result.parameters, expected.parameters) <= 1e-10);
  }
}

void check_exception(comm::Communicator& world) {
  RunSpec s = spec(world);
  const RunResult expected = train_on(world, s);
  RankRun run(world, s);
  run.step(0);
  Module* middle = nullptr;
  for (Module* module : run.module().modules()) {
    if (module->name() == "blocks.1.mlp") middle = module;
  }
  middle->set_hooks({.pre_backward = [] { fail("[test] a hook throws"); }});
  CHECK(contains(error_of([&] { run.step(1); }), "a hook throws"));
  middle->set_hooks({});
  run.recover(1);
  run.step(1);
  run.step(2);
  CHECK((run.result() == expected));
}

void check_order_divergence(comm::Communicator& world) {
  RunSpec s = spec(world);
  const bool other = world.rank() == world.size() - 1;
  s.subject = block_list(small_gpt2(), [other](const Pass&) {
    return other ? std::vector<int>{0, 2, 1} : std::vector<int>{0, 1, 2};
  });
  const std::string message = error_of([&] {
    RankRun run(world, s);
    run.step(0);
    run.wait();
  });
  CAPTURE(message);
  CHECK(contains(message, "unit blocks.1"));
  CHECK(contains(message, "unit blocks.2"));
  CHECK(contains(message, fmt::format("rank {}", world.size() - 1)));
}

}  // namespace fsdp::test
