// The order of a step: every call in every state, what an error leaves, and what a step gives. That
// its numbers are right: tests/comm/fsdp (whose runs take their steps with it), tests/e2e.
#include "tools/engine/train_step.h"

#include <map>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "models/weights.h"
#include "tests/support/places.h"
#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"
#include "tools/engine/sharded_values.h"

namespace fsdp {
namespace {

using Doubles = std::vector<double>;

// A small model on one rank, with a step of two micro-steps.
class Rig {
 public:
  explicit Rig(comm::Communicator& world, const TrainStepOptions& options = {}) {
    Places places = test::on_cpu();
    subject_ = test::causal_lm(test::small_gpt2())(*places.device, DType::kF64);
    engine_.emplace(
        world, std::move(places), std::move(subject_.module),
        EngineOptions{
            .wrap = comm::wrap_classes({subject_.block_class}),
            .fsdp = {.param_dtype = DType::kF64, .reduce_dtype = DType::kF64, .micro_steps = 2},
            .step = options});
    engine_->initialise(models::from_scratch(17));
  }

  TrainStep& step() { return engine_->steps(); }
  comm::FullySharded& sharded() { return engine_->sharded(); }
  // Sum over four labels, which depend on `first`.
  Tensor loss(int32_t first) {
    const std::vector<int32_t> ids = {first, 5, 2, 7};
    const Tensor tokens = Tensor::from_host(engine_->backend(), Shape{1, 4}, ids);
    const Tensor labels = Tensor::from_host(engine_->backend(), Shape{4}, ids);
    const ForwardContext context;
    return subject_.loss(
        {.tokens = tokens, .labels = labels, .context = context, .gradient_scale = 0.125});
  }
  TrainStep::Forward forward(int32_t first, double weight = 1) {
    return {.loss = [this, first] { return loss(first); }, .weight = weight};
  }
  void micro_steps(int count) {
    for (int i = 0; i < count; ++i) step().micro_step({forward(1 + i)});
  }
  std::map<std::string, Doubles> parameters() {
    std::map<std::string, Doubles> out;
    visit_parameters(sharded(), [&](const Parameter& parameter, const Tensor& values) {
      out[parameter.name()] = values.to_doubles();
    });
    return out;
  }

 private:
  test::Subject subject_;
  std::optional<Engine> engine_;  // has the subject's module
};

// body(rig) on a world of one rank.
void on_rig(const std::function<void(Rig&)>& body, const TrainStepOptions& options = {}) {
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    Rig rig(world, options);
    body(rig);
  });
}

const std::map<std::string, std::function<void(Rig&)>> kCalls = {
    {"micro_step", [](Rig& rig) { rig.micro_steps(1); }},
    {"handle", [](Rig& rig) { rig.step().handle().read(); }},
    {"update", [](Rig& rig) { rig.step().update(1e-2).read(); }},
    {"evaluate", [](Rig& rig) { rig.step().evaluate([] {}); }},
    {"restart", [](Rig& rig) { rig.step().restart(); }},
    {"recover", [](Rig& rig) { rig.step().recover(); }},
};

TEST_CASE("train step: every call in every state") {
  const std::string all = "expected all micro-steps before it, got it ";
  const std::string end = "expected update or restart before it, got it ";
  const std::map<std::string, std::vector<std::string>> refused = {
      // after 0, 1 and 2 of 2 micro-steps
      {"micro_step", {"", "", end + "after 2 of 2 micro-steps"}},
      {"handle", {all + "between steps", all + "after 1 of 2 micro-steps", ""}},
      {"update", {all + "between steps", all + "after 1 of 2 micro-steps", ""}},
      {"evaluate", {"", end + "after 1 of 2 micro-steps", end + "after 2 of 2 micro-steps"}},
      {"restart", {"", "", ""}},
      {"recover", {"", "", ""}}};
  for (const auto& [call, body] : kCalls) {
    for (int done = 0; done <= 2; ++done) {
      CAPTURE(call);
      CAPTURE(done);
      on_rig([&, call = call, body = body](Rig& rig) {
        rig.micro_steps(done);
        const std::string& reason = refused.at(call)[static_cast<size_t>(done)];
        const std::string expected =
            reason.empty() ? "" : fmt::format("[train_step] {}: {}", call, reason);
        CHECK(test::error_of([&] { body(rig); }) == expected);
        if (expected.empty()) return;
        // Who was refused has changed nothing: the step goes on.
        rig.micro_steps(2 - done);
        rig.step().update(1e-2).read();
      });
    }
  }
}

TEST_CASE("train step: after an error only restart and recover are right, and lead back") {
  std::map<std::string, Doubles> expected;
  on_rig([&](Rig& rig) {
    rig.micro_steps(2);
    rig.step().update(1e-2).read();
    expected = rig.parameters();
  });
  for (const std::string way : {"restart", "recover"}) {
    CAPTURE(way);
    on_rig([&](Rig& rig) {
      rig.micro_steps(1);
      CHECK(test::error_of([&] {
              rig.step().micro_step({rig.forward(3), {.loss = []() -> Tensor { fail("broken"); }}});
            }) == "broken");
      for (const auto& [call, body] : kCalls) {
        if (call == "restart" || call == "recover") continue;
        CHECK(test::error_of([&, body = body] { body(rig); }) ==
              fmt::format("[train_step] {}: expected restart or recover before it, got it after a "
                          "call that ended with an error",
                          call));
      }
      kCalls.at(way)(rig);
      rig.micro_steps(2);
      rig.step().update(1e-2).read();
      CHECK((rig.parameters() == expected));
    });
  }
}

TEST_CASE("train step: the loss is the weighted sum of all passes, the last backward comes first") {
  on_rig([](Rig& rig) {
    std::vector<double> losses;
    for (const int32_t first : {1, 2, 3}) {
      rig.step().evaluate([&] { losses.push_back(rig.loss(first).item()); });
    }
    rig.step().micro_step({rig.forward(1, 0.5), rig.forward(2, 0.25)});
    rig.step().micro_step({rig.forward(3, 2)});
    const double expected = losses[0] * 0.5 + losses[1] * 0.25 + losses[2] * 2;
    CHECK(rig.step().handle().read().loss == doctest::Approx(expected).epsilon(1e-12));
    const StepValues values = rig.step().update(0).read();
    CHECK(values.loss == doctest::Approx(expected).epsilon(1e-12));
    CHECK(values.grad_norm > 0);
    CHECK_FALSE(values.skipped);
  });
}

TEST_CASE("train step: what is dropped or evaluated leaves no trace in the next step") {
  std::map<std::string, Doubles> start, expected;
  on_rig([&](Rig& rig) {
    start = rig.parameters();
    rig.micro_steps(2);
    rig.step().update(1e-2).read();
    expected = rig.parameters();
    CHECK((expected != start));
  });
  on_rig([&](Rig& rig) {
    rig.micro_steps(2);
    rig.step().restart();
    CHECK((rig.parameters() == start));
    rig.step().evaluate([&] { rig.loss(9); });
    rig.micro_steps(2);
    rig.step().update(1e-2).read();
    CHECK((rig.parameters() == expected));
  });
}

TEST_CASE("train step: without training there are gradients, but no update") {
  on_rig(
      [](Rig& rig) {
        rig.micro_steps(2);
        CHECK(test::error_of([&] { rig.step().update(1); }) ==
              "[train_step] update: made without training");
        CHECK(test::error_of([&] { rig.step().optimizer(); }) ==
              "[train_step] optimizer: made without training");
        rig.step().restart();
      },
      {.training = false});
}

TEST_CASE("step handle: results of no step are refused") {
  CHECK(test::error_of([] { StepHandle().read(); }) ==
        "[step_handle] read: expected the results of a step, got none");
}

}  // namespace
}  // namespace fsdp
