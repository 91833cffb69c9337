// train.optimizer: what is usual for each kind, options of another kind, and kinds that do not work
// on shards.
// Requirements: S4.9.
#include <doctest/doctest.h>

#include "optim/optimizer_kind.h"
#include "tests/support/temp_folder.h"
#include "tools/config/config.h"

namespace fsdp::config {
namespace {

TrainConfig parse(const std::string& yaml, const std::vector<Override>& overrides = {}) {
  return parse_config(yaml, "x.yaml", overrides);
}

std::string refusal(const std::string& yaml, const std::vector<Override>& overrides = {}) {
  return test::error_of([&] { parse(yaml, overrides); });
}

void check_without_effect(const std::string& option, std::vector<Override> others = {}) {
  others.push_back(option);
  const std::string key = option.substr(0, option.find('=')), text = refusal("", others);
  CAPTURE(text);
  CHECK(text.starts_with(fmt::format("--set {}: {}: ", option, key)));
  CHECK(test::contains(text, " has no effect with"));
}

TEST_CASE("optimizers: their options, and what is usual for each kind") {
  const auto options = [](const std::vector<std::string>& keys) {
    std::vector<Override> overrides;
    for (const std::string& key : keys) overrides.emplace_back("train.optimizer." + key);
    return parse("", overrides).optimizer();
  };
  CHECK(options({}).kind == optim::OptimizerKind::kAdamW);
  CHECK(options({}).weight_decay == 0.1);
  CHECK(options({"kind=adamw_torch"}).kind == optim::OptimizerKind::kAdamW);
  const optim::OptimizerOptions adam = options({"name=Adam", "beta1=0.5", "beta2=0.75", "eps=1"});
  CHECK(adam.kind == optim::OptimizerKind::kAdam);
  CHECK(adam.weight_decay == 0);
  CHECK(adam.beta1 == 0.5);
  CHECK(adam.beta2 == 0.75);
  CHECK(adam.epsilon == 1);
  const optim::OptimizerOptions adamax = options({"kind=adamax", "beta2=0.75"});
  CHECK(adamax.kind == optim::OptimizerKind::kAdamax);
  CHECK(adamax.beta2 == 0.75);
  CHECK(adamax.epsilon == 1e-8);
  CHECK(adamax.weight_decay == 0);
  const optim::OptimizerOptions adadelta = options({"kind=Adadelta", "rho=0.75"});
  CHECK(adadelta.kind == optim::OptimizerKind::kAdadelta);
  CHECK(adadelta.rho == 0.75);
  CHECK(adadelta.epsilon == 1e-6);
  CHECK(options({"kind=adadelta", "eps=0.5"}).epsilon == 0.5);
  const optim::OptimizerOptions sgd =
      options({"kind=sgd", "momentum=0.75", "dampening=0.5", "weight_decay=0.25"});
  CHECK(sgd.kind == optim::OptimizerKind::kSgd);
  CHECK(sgd.momentum == 0.75);
  CHECK(sgd.dampening == 0.5);
  CHECK(sgd.weight_decay == 0.25);
  CHECK(options({"kind=sgd", "momentum=0.75", "nesterov=true"}).nesterov);
  const std::string unknown = refusal("", {"train.optimizer.kind=muon"});
  std::string kinds;
  for (const optim::OptimizerKind kind : optim::kOptimizerKinds) {
    kinds += (kinds.empty() ? "" : ", ") + std::string(optim::name_of(kind));
  }
  CHECK(test::contains(unknown, "train.optimizer.kind: expected one of " + kinds));
  CHECK(test::contains(unknown, ", got \"muon\""));
  // That do not work on shards, element by element.
  for (const auto& [kind, reason] : {std::pair{"adafactor", "sums over rows and columns"},
                                     {"lamb", "the norm of every tensor"},
                                     {"adagrad", "there is no Adagrad"},
                                     {"adamw_bnb_8bit", "shards cut blocks"}}) {
    CAPTURE(kind);
    CHECK(test::contains(refusal("", {std::string("train.optimizer.kind=") + kind}), reason));
  }
}

TEST_CASE("options of another optimizer are refused") {
  for (const char* option : {"momentum=0.9", "dampening=0.5", "nesterov=true"}) {
    check_without_effect(fmt::format("train.optimizer.{}", option));
    check_without_effect(fmt::format("train.optimizer.{}", option), {"train.optimizer.kind=adam"});
  }
  for (const char* option : {"beta1=0.5", "beta2=0.5", "epsilon=0.5"}) {
    check_without_effect(fmt::format("train.optimizer.{}", option), {"train.optimizer.kind=sgd"});
  }
  for (const char* option : {"dampening=0.5", "nesterov=true", "rho=0.5"}) {
    check_without_effect(fmt::format("train.optimizer.{}", option), {"train.optimizer.kind=sgd"});
  }
  for (const char* option : {"beta1=0.5", "beta2=0.5", "momentum=0.5"}) {
    check_without_effect(fmt::format("train.optimizer.{}", option),
                         {"train.optimizer.kind=adadelta"});
  }
  check_without_effect("train.optimizer.rho=0.5", {"train.optimizer.kind=adamax"});
  // Also as they are anyway, where they are set by hand; a file may be one that a run wrote.
  check_without_effect("train.optimizer.momentum=0");
  check_without_effect("train.optimizer.beta1=0.9", {"train.optimizer.kind=sgd"});
  check_without_effect("train.optimizer.weight_decay=0.5", {"train.optimizer.decay=none"});
  check_without_effect("train.optimizer.decay=all", {"train.optimizer.weight_decay=0"});
  check_without_effect("train.optimizer.decay=all", {"train.optimizer.kind=sgd"});
}

TEST_CASE("optimizers are written and read back") {
  using Kind = optim::OptimizerKind;
  for (const OptimizerSection& section : std::vector<OptimizerSection>{
           {.kind = Kind::kSgd, .momentum = 0.5, .dampening = 0.25, .weight_decay = 0.125},
           {.kind = Kind::kSgd, .momentum = 0.5, .nesterov = true},
           {.kind = Kind::kAdam, .beta1 = 0.5, .weight_decay = 0.125, .decay = Decay::kAll},
           {.kind = Kind::kAdamax, .beta1 = 0.5, .epsilon = 0.25},
           {.kind = Kind::kAdadelta, .rho = 0.5, .epsilon = 0.25},
           {.beta2 = 0.5, .epsilon = 0.25, .decay = Decay::kNone}}) {
    TrainConfig config;
    config.train.optimizer = section;
    const std::string text = to_yaml(config);
    CHECK(text != to_yaml({}));
    CHECK(refusal(text) == "");
    CHECK(to_yaml(parse(text)) == text);
  }
}

}  // namespace
}  // namespace fsdp::config
