// Several forwards before a backward: gradients are the sum of what separate passes give, and every
// unit goes through its states, also where the arena has fewer buffers than there are units with
// gradients half done. The calls of a step are written by hand, not by TrainStep: states
// are looked at between them.
#include <list>

#include <doctest/doctest.h>

#include "models/input_rules.h"
#include "tests/support/sharded_run.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

constexpr int64_t kRows = 3, kLength = 7;
constexpr size_t kRoot = 0;
constexpr RecomputeMode kNone = RecomputeMode::kNone;

struct Setting {
  int ranks = 1;
  FsdpOptions options;
  RecomputeMode recompute = RecomputeMode::kNone;
};

Setting with(Setting setting, DType param_dtype, DType reduce_dtype) {
  setting.options.param_dtype = param_dtype;
  setting.options.reduce_dtype = reduce_dtype;
  return setting;
}

// Every strategy, on as many ranks as take different ways through it.
std::vector<Setting> strategies() {
  using enum Strategy;
  std::vector<Setting> out;
  for (const Strategy strategy : {kFullShard, kShardGradOp}) {
    for (const int ranks : {1, 2, 3}) out.push_back({ranks, {.strategy = strategy}});
  }
  for (const Strategy strategy : {kShardOptimizer, kNoShard}) {
    for (const int ranks : {1, 2}) out.push_back({ranks, {.strategy = strategy}});
  }
  for (const Strategy strategy : {kHybridShard, kHybridShardZero2}) {
    out.push_back({4, {.strategy = strategy, .shard_size = 2}});
  }
  for (Setting& setting : out) setting = with(setting, DType::kF64, DType::kF64);
  return out;
}

// Forwards of passes 0, 1, ... and then their backwards.
class Passes {
 public:
  Passes(Communicator& world, const Setting& setting)
      : run_(world, spec(setting)), model_(static_cast<models::CausalLM&>(run_.module())) {}

  Tensor forward(int pass) {
    const std::vector<int32_t> ids = ids_of(pass);
    const Tensor labels = Tensor::from_host(run_.backend(), Shape{kRows * kLength},
                                            models::shifted_labels(ids, kRows, kLength));
    return model_.loss(tensor_of(ids), labels, context(pass), 0.1);
  }
  // Whose output nobody uses. (A loss would have written the head's gradient in forward.)
  void forward_in_vain(int pass) { model_.logits(tensor_of(ids_of(pass)), context(pass)); }
  void backward(const Tensor& loss) { run_.tape().backward(loss); }
  NamedValues finish() {
    sharded().finish_backward();
    NamedValues gradients;
    visit_gradients(sharded(), [&](const Parameter& p, const Tensor& values) {
      gradients[p.name()] = values.to_doubles();
    });
    return gradients;
  }
  FullySharded& sharded() { return run_.sharded(); }

 private:
  int64_t sample(int pass, int64_t row) { return row + kRows * (run_.rank() + 8 * pass); }
  std::vector<int32_t> ids_of(int pass) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < kRows * kLength; ++i) {
      const int64_t s = sample(pass, i / kLength);
      ids.push_back(static_cast<int32_t>((5 * s + i % kLength * (1 + s % 3)) % 31));
    }
    return ids;
  }
  Tensor tensor_of(const std::vector<int32_t>& ids) {
    return Tensor::from_host(run_.backend(), Shape{kRows, kLength}, ids);
  }
  ForwardContext context(int pass) {
    std::vector<int64_t> samples;
    for (int64_t row = 0; row < kRows; ++row) samples.push_back(sample(pass, row));
    samples_.push_back(Tensor::from_host(run_.backend(), Shape{kRows}, samples));
    return {.training = true, .dropout = {.seed = 5}, .samples = &samples_.back()};
  }
  static RunSpec spec(const Setting& setting) {
    RunSpec s;
    s.subject = causal_lm(small_gpt2(), setting.recompute);
    s.ranks = setting.ranks;
    s.fsdp = setting.options;
    return s;
  }

  RankRun run_;
  std::list<Tensor> samples_;  // of every pass: recompute reads them in backward
  models::CausalLM& model_;
};

// On every rank; the gradients of rank 0.
NamedValues gradients_of(const Setting& setting, const std::function<NamedValues(Passes&)>& body) {
  std::vector<NamedValues> gradients(static_cast<size_t>(setting.ranks));
  run_local_ranks(setting.ranks, [&](Communicator& world) {
    Passes passes(world, setting);
    gradients[static_cast<size_t>(world.rank())] = body(passes);
  });
  for (const NamedValues& values : gradients) CHECK((values == gradients[0]));
  return gradients[0];
}

NamedValues separate_sum(const Setting& setting, int passes) {
  NamedValues sum;
  for (int pass = 0; pass < passes; ++pass) {
    const NamedValues one = gradients_of(setting, [&](Passes& p) {
      p.backward(p.forward(pass));
      return p.finish();
    });
    for (const auto& [name, values] : one) {
      std::vector<double>& total = sum[name];
      total.resize(values.size());
      for (size_t i = 0; i < values.size(); ++i) total[i] += values[i];
    }
  }
  return sum;
}

void check_states(FullySharded& sharded, size_t unit, ParameterState state, int open) {
  const Unit& u = *sharded.units()[unit];
  CAPTURE(u.name);
  if (!u.policy.resident()) CHECK(u.parameters.state() == state);
  CHECK(u.open_forwards == open);
}

// Forwards of all passes, then the backwards, first or last pass first.
NamedValues together(Passes& p, int passes, bool last_first, RecomputeMode recompute) {
  using enum ParameterState;
  FullySharded& sharded = p.sharded();
  const size_t units = sharded.units().size();
  const bool keeps = sharded.units()[kRoot]->policy.keeps_parameters();
  const auto usual = [&] {
    p.backward(p.forward(0));
    const NamedValues gradients = p.finish();
    sharded.finish_step();
    return gradients;
  };
  const NamedValues before = usual();
  std::vector<Tensor> losses;
  for (int pass = 0; pass < passes; ++pass) {
    losses.push_back(p.forward(pass));
    check_states(sharded, kRoot, kUnsharded, pass + 1);
    for (size_t u = 1; u < units; ++u) {
      check_states(sharded, u, keeps ? kUnsharded : kSharded, pass + 1);
    }
  }
  for (int left = passes; left-- > 0;) {
    const int pass = last_first ? left : passes - 1 - left;
    p.backward(losses[static_cast<size_t>(pass)]);
    for (size_t u = 1; u < units; ++u) {
      check_states(sharded, u, kSharded, left);
      const UnitGradients& gradients = *sharded.units()[u]->gradients;
      // Under full recompute, uses are recorded in backward only.
      if (recompute != RecomputeMode::kFull) CHECK(gradients.backward_pending() == (left > 0));
      CHECK(gradients.state() != GradientState::kNone);
      if (left == 0) CHECK(gradients.state() == GradientState::kReduced);
    }
  }
  const NamedValues gradients = p.finish();
  for (size_t u = 0; u < units; ++u) {
    check_states(sharded, u, kSharded, 0);
    CHECK(sharded.units()[u]->gradients->state() == GradientState::kReduced);
  }
  sharded.finish_step();
  for (const auto& unit : sharded.units()) {
    CHECK(unit->gradients->state() == GradientState::kNone);
    CHECK_FALSE(unit->gradients->backward_pending());
  }
  CHECK((usual() == before));  // nothing is left of it
  return gradients;
}

}  // namespace

TEST_CASE("several forwards before their backwards: the sum of separate passes, unit by unit") {
  for (Setting setting : strategies()) {
    CAPTURE(choice_name(setting.options.strategy));
    CAPTURE(setting.ranks);
    const NamedValues expected = separate_sum(setting, 3);
    for (const RecomputeMode recompute :
         {RecomputeMode::kNone, RecomputeMode::kSelective, RecomputeMode::kFull}) {
      setting.recompute = recompute;
      for (const bool last_first : {false, true}) {
        setting.options.units_in_flight = last_first ? 1 : 2;
        setting.options.release_arena = !last_first;
        const NamedValues sum =
            gradients_of(setting, [&](Passes& p) { return together(p, 3, last_first, recompute); });
        CHECK(largest_difference(sum, expected) <= 1e-12);
      }
    }
  }
}

TEST_CASE("several forwards before their backwards in bf16: parts are rounded once each") {
  const Setting setting = {.ranks = 2};
  const Setting wide = with(setting, DType::kF64, DType::kF64);
  const Setting narrow = with(setting, DType::kBF16, DType::kBF16);
  const NamedValues sum =
      gradients_of(narrow, [&](Passes& p) { return together(p, 2, true, kNone); });
  CHECK(largest_difference(sum, separate_sum(wide, 2)) <= 0.05);
  CHECK(largest_difference(sum, separate_sum(narrow, 2)) <= 0.02);
}

TEST_CASE(
    "backward after backward, without a new micro-step: their sum, also where it is in place") {
  for (Setting setting : strategies()) {
    CAPTURE(choice_name(setting.options.strategy));
    CAPTURE(setting.ranks);
    const bool hybrid = is_hybrid(setting.options.strategy);
    for (const bool replicas_may_wait : hybrid ? std::vector{false, true} : std::vector{false}) {
      CAPTURE(replicas_may_wait);
      if (replicas_may_wait) setting.options.accumulation = Accumulation::kReduceScatterEach;
      for (const std::optional<double> divisor : {std::optional<double>(), std::optional(2.5)}) {
        setting.options.divide_factor = divisor;
        const NamedValues expected = separate_sum(setting, 3);
        for (const bool release_arena : {false, true}) {
          setting.options.release_arena = release_arena;
          const NamedValues sum = gradients_of(setting, [&](Passes& p) {
            NamedValues gradients;
            for (int step = 0; step < 2; ++step) {
              for (int pass = 0; pass < 3; ++pass) p.backward(p.forward(pass));
              gradients = p.finish();
              p.sharded().finish_step();
            }
            return gradients;
          });
          CHECK(largest_difference(sum, expected) <= 1e-12);
        }
      }
    }
  }
}

TEST_CASE("a forward whose backward never comes: the gradient is that of the other one") {
  for (const Setting& setting : strategies()) {
    CAPTURE(choice_name(setting.options.strategy));
    CAPTURE(setting.ranks);
    const NamedValues expected = separate_sum(setting, 1);
    for (const auto& [param_dtype, reduce_dtype, error] :
         {std::tuple{DType::kF64, DType::kF64, 1e-12}, std::tuple{DType::kF32, DType::kBF16, 0.02},
          std::tuple{DType::kF32, DType::kF16, 0.02},
          std::tuple{DType::kBF16, DType::kBF16, 0.05}}) {
      CAPTURE(name_of(reduce_dtype));
      const NamedValues one =
          gradients_of(with(setting, param_dtype, reduce_dtype), [&](Passes& p) {
            p.backward(p.forward(1));  // what is left in the buffers is not what is expected
            p.finish();
            p.sharded().finish_step();
            const Tensor loss = p.forward(0);
            p.forward_in_vain(1);
            p.backward(loss);
            return p.finish();
          });
      CHECK(largest_difference(one, expected) <= error);
    }
  }
}

TEST_CASE("units used several times in one forward, more of them than gradient buffers") {
  RunSpec s;
  s.fsdp.param_dtype = s.fsdp.reduce_dtype = DType::kF64;
  s.keep_gradients = true;
  const auto order = [](const Pass&) { return std::vector<int>{0, 1, 2, 0, 1, 2, 2, 0}; };
  s.subject = block_list(small_llama(), order);
  s.ranks = 1;
  const RunResult alone = train(s);
  for (const RecomputeMode recompute : {RecomputeMode::kNone, RecomputeMode::kFull}) {
    s.subject = block_list(small_llama(), order, recompute);
    for (const Strategy strategy : {Strategy::kFullShard, Strategy::kShardGradOp}) {
      for (const int ranks : {2, 3}) {
        s.fsdp.strategy = strategy;
        s.ranks = ranks;
        CAPTURE(choice_name(strategy));
        CAPTURE(ranks);
        const RunResult result = train(s);
        CHECK(loss_difference(result, alone) <= 1e-12);
        CHECK(largest_difference(result.gradients, alone.gradients) <= 1e-11);
      }
    }
  }
}
