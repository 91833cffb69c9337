// Overrides and keys as users of other programs type them, and keys that are set in vain.
// Requirements: S2.1.
#include <doctest/doctest.h>

#include "core/error.h"
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

TEST_CASE("a sweep or a new key is no override") {
  for (const char* sweep : {"train.lr=1e-4,3e-4", "train.steps=[1, 2]", "train.save=true,false",
                            "fsdp.strategy=full_shard,no_shard", "model.rope_theta=1,2"}) {
    CAPTURE(sweep);
    CHECK(test::contains(refusal("", {sweep}),
                         "; a run has one value of a key: fsdp sweep takes several"));
  }
  CHECK(parse("", {"runtime.name=a,b"}).runtime.name == "a,b");
}

TEST_CASE("keys of another program are told no key that is not close") {
  const std::string error = refusal("compute_environment: LOCAL_MACHINE\n");
  CHECK(test::contains(error, "x.yaml:1: unknown key \"compute_environment\"; expected model, "));
  CHECK_FALSE(test::contains(error, "nearest"));
}

TEST_CASE("keys without effect") {
  const TrainConfig c = parse_keys({"train.eval_every=5", "sample.top_k=3", "train.lr=1"});
  const auto without = keys_without_effect(c);
  REQUIRE(without.size() == 2);
  CHECK(without[0].key == "train.eval_every");
  CHECK(without[0].value == "5");
  CHECK(without[0].reason == "without data.validation");
  CHECK(without[1].key == "sample.top_k");
  CHECK(keys_without_effect(parse("")).empty());
}

}  // namespace
}  // namespace fsdp::config
