// The jobs of a small sweep.
// Requirements: S2.1.
#include "tools/jobs/variations.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

TEST_CASE("variations: every combination, each with a directory of its own") {
  CHECK(
      variations_of({"train.lr=[1e-4, 3e-4]", "data.train=[[a.txt, b/c.txt]]", "train.seed=[1, 2]"},
                    "runs/x") ==
      std::vector<Variation>{{"train.lr=1e-4", "data.train=[a.txt, b/c.txt]", "train.seed=1",
                              "runtime.run_dir=runs/x/lr=1e-4,train=_a.txt__b_c.txt_,seed=1"},
                             {"train.lr=1e-4", "data.train=[a.txt, b/c.txt]", "train.seed=2",
                              "runtime.run_dir=runs/x/lr=1e-4,train=_a.txt__b_c.txt_,seed=2"},
                             {"train.lr=3e-4", "data.train=[a.txt, b/c.txt]", "train.seed=1",
                              "runtime.run_dir=runs/x/lr=3e-4,train=_a.txt__b_c.txt_,seed=1"},
                             {"train.lr=3e-4", "data.train=[a.txt, b/c.txt]", "train.seed=2",
                              "runtime.run_dir=runs/x/lr=3e-4,train=_a.txt__b_c.txt_,seed=2"}});
}

TEST_CASE("variations: keys that end alike have their whole names") {
  const auto jobs =
      variations_of({"train.schedule.kind=[linear]", "train.optimizer.kind=[sgd]"}, "r");
  CHECK(jobs.at(0).back() ==
        "runtime.run_dir=r/train.schedule.kind=linear,train.optimizer.kind=sgd");
}

TEST_CASE("variations: what is no list, or the same twice, is refused") {
  const auto refusal = [](const std::vector<std::string>& given) {
    return test::error_of([&] { variations_of(given, "r"); });
  };
  for (const char* wrong :
       {"train.lr", "train.lr=", "=[1]", "train.lr=3e-4", "train.lr=[]", "train.lr=[1, "}) {
    CAPTURE(wrong);
    CHECK(test::contains(refusal({wrong}), "expected a key and a list of values"));
  }
  CHECK(test::contains(refusal({"runtime.run_dir=[a, b]"}), "each job has a directory of its own"));
  CHECK(test::contains(refusal({"train.lr=[1]", "train.lr=[2]"}), "train.lr is varied twice"));
  CHECK(refusal({"a.b=[x/y, x_y]"}) == "--vary: two jobs would have the directory r/b=x_y");
  CHECK(
      test::contains(refusal({"a.b=[" + std::string(300, 'x') + "]"}), "would be longer than 200"));
}

}  // namespace
}  // namespace fsdp::tools
