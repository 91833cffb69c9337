// The configurations that a recipe means, and what refuses them.
// Requirements: S2.1.
#include "tools/sweep/sweep_cases.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tools/config/key_values.h"

namespace fsdp::tools {
namespace {

constexpr const char* kBase = R"(
model: {model_type: llama, hidden_size: 16, layers: 1, heads: 2, vocab_size: 32}
data: {format: synthetic, synthetic_rows: 8, sequence_length: 8}
train: {steps: 2, batch: 4, lr: 1e-3}
runtime: {run_dir: elsewhere}
)";

struct Folder : test::TempFolder {
  Folder() { write("base.yaml", kBase); }
  std::vector<SweepCase> cases(const std::string& recipe,
                               const std::vector<std::string>& typed = {}) const {
    return cases_of(read_recipe(write("r.yaml", recipe), typed));
  }
  std::string refusal(const std::string& recipe) const {
    return test::error_of([&] { cases(recipe); });
  }
};

TEST_CASE("sweep cases: a grid, the last key varies fastest; later layers count more") {
  const Folder folder;
  const auto cases = folder.cases(R"(question: why?
include: base.yaml
set: {train.lr: 2e-3, train.seed: 7}
ranks: 2
grid: {fsdp.strategy: [no_shard, full_shard], ranks: [1, 4]}
)",
                                  {"train.seed=8"});
  REQUIRE(cases.size() == 4);
  CHECK(cases[0].name == "strategy=no_shard,ranks=1");
  CHECK(cases[1].name == "strategy=no_shard,ranks=4");
  CHECK(cases[3].ranks == 4);
  CHECK(cases[3].config.fsdp.options.strategy == comm::Strategy::kFullShard);
  CHECK(cases[0].config.fsdp.options.strategy == comm::Strategy::kNoShard);
  CHECK(cases[0].config.train.lr == 2e-3);
  CHECK(cases[0].config.train.seed == 8);
  CHECK(cases[0].config.train.batch == 4);
  CHECK(cases[0].config.runtime.run_dir.empty());
}

TEST_CASE("sweep cases: named cases, and one without any") {
  const Folder folder;
  const auto cases = folder.cases(R"(question: why?
include: base.yaml
set: {train.epochs: 2}
cases:
  plain:
  longer: {ranks: 2, train.steps: 9}
)");
  REQUIRE(cases.size() == 2);
  CHECK(cases[0].name == "plain");
  CHECK(cases[0].ranks == 1);
  CHECK(cases[0].config.train.epochs == 2);
  CHECK(cases[1].ranks == 2);
  CHECK(cases[1].config.train.steps == 9);
  CHECK(cases[1].config.train.epochs == 0);
  const auto alone = folder.cases(kBase, {"train.lr=1e-4,3e-4", "train.seed=1,2"});
  REQUIRE(alone.size() == 4);
  CHECK(alone[2].name == "lr=3e-4,seed=1");
  CHECK(folder.cases(kBase).at(0).name == "r");
}

TEST_CASE("sweep cases: a key that has no effect in one of them is left out there, with a note") {
  const Folder folder;
  const auto cases = folder.cases(R"(question: why?
include: base.yaml
set: {fsdp.prefetch_depth: 2, fsdp.units_in_flight: 3}
ranks: 2
grid: {fsdp.strategy: [no_shard, full_shard]}
)");
  REQUIRE(cases.size() == 2);
  CHECK(cases[0].config.fsdp.prefetch_depth == 1);
  CHECK(!cases[0].config.notes.empty());
  CHECK(cases[1].config.fsdp.prefetch_depth == 2);
  CHECK(cases[1].config.notes.empty());
}

TEST_CASE("sweep cases: a key that has an effect in no case is refused") {
  const Folder folder;
  const std::string head = "question: why?\ninclude: base.yaml\nranks: 2\n";
  const auto refusal = [&](const std::string& rest, const std::vector<std::string>& typed = {}) {
    return test::error_of([&] { folder.cases(head + rest, typed); });
  };
  const std::string place = (folder / "r.yaml").string() + ":4: ";
  const std::string without = "fsdp.prefetch_depth: no effect without forward_prefetch";
  const std::string off = "fsdp.forward_prefetch: false";
  // Beside a case with an effect, and by another name of the key.
  CHECK(refusal("cases: {a: {" + off + ", fsdp.prefetch_depth: 2}, b: {fsdp.prefetch_depth: 2}}") ==
        place + without + " (case a)");
  CHECK(test::contains(
      refusal("cases: {a: {fsdp.strategy: no_shard, fsdp.fsdp_forward_prefetch: false}, b: }"),
      place + "fsdp.forward_prefetch: no effect "));
  CHECK(refusal("grid: {" + off.substr(0, 22) + " [false], fsdp.prefetch_depth: [1, 2]}") ==
        place + without + ", in any case");
  CHECK(refusal("set: {fsdp.prefetch_depth: 2, " + off + "}\ncases: {a: , b: }") ==
        place + without + ", in any case");
  CHECK(refusal("cases: {a: {" + off + "}}", {"fsdp.prefetch_depth=2"}) ==
        "--set fsdp.prefetch_depth=2: " + without);
  CHECK(test::contains(refusal("full_size: {set: {fsdp.prefetch_depth: 2, " + off + "}}"),
                       place + without));
  CHECK(refusal("grid: {fsdp.forward_prefetch: [false, true], fsdp.prefetch_depth: [1, 2]}") == "");
}

TEST_CASE("sweep cases: the notes of a case, and of its full size") {
  const Folder folder;
  const auto cases = folder.cases(R"(question: why?
include: base.yaml
set: {train.epochs: 1}
full_size: {set: {fsdp.strategy: no_shard}}
cases: {a: {ranks: 2, fsdp.prefetch_depth: 2}}
)");
  REQUIRE(cases.at(0).notes.size() == 2);
  CHECK(test::contains(cases[0].notes[0], "counts instead of train.steps: 2"));
  CHECK(test::contains(cases[0].notes[1], "left out: fsdp.prefetch_depth: 2"));
}

TEST_CASE("sweep cases: a model at full size takes the place of the small one and of its sizes") {
  const Folder folder;
  const auto cases = folder.cases(R"(question: why?
include: base.yaml
set: {model: {hidden_size: 64, heads: 4}}
full_size: {set: {model: {preset: gpt2-124m, vocab_size: 1000}}}
)");
  CHECK(cases.at(0).config.model.hidden_size == 64);
  const config::ModelSection& full = cases.at(0).full_size.value().config.model;
  CHECK(full.preset == "gpt2-124m");
  CHECK(full.hidden_size == 0);
  CHECK(full.layers == 0);
  CHECK(full.vocab_size == 1000);
}

TEST_CASE("sweep cases: paths hold in any folder") {
  const Folder folder;
  folder.write("text.txt", "some text that is trained");
  const auto cases = folder.cases(R"(question: why?
include: base.yaml
set: {data.format: auto, data.synthetic_rows: auto, data.train: text.txt, model.vocab_size: 0}
)");
  CHECK(cases.at(0).config.data.train == std::vector<std::string>{(folder / "text.txt").string()});
}

TEST_CASE("sweep cases: the full size is on top of a case, whose own counts more") {
  const Folder folder;
  const auto cases = folder.cases(R"(question: why?
include: base.yaml
full_size: {set: {model.layers: 3, train.batch: 16}, gpu: V100-16}
cases:
  a: {ranks: 2}
  b: {full_size: {ranks: 8, set: {model.layers: 5}}}
)");
  REQUIRE(cases.at(0).full_size);
  CHECK(cases[0].full_size->config.model.layers == 3);
  CHECK(cases[0].full_size->config.model.hidden_size == 16);
  CHECK(cases[0].full_size->ranks == 2);
  CHECK(cases[0].full_size->gpu == "V100-16");
  CHECK(cases[1].full_size->config.model.layers == 5);
  CHECK(cases[1].full_size->config.train.batch == 16);
  CHECK(cases[1].full_size->ranks == 8);
  CHECK(cases[1].config.model.layers == 1);
}

TEST_CASE("sweep cases: mistakes name the file, the line and the case") {
  const Folder folder;
  const std::string head = "question: why?\ninclude: base.yaml\n";
  const std::string file = (folder / "r.yaml").string();
  CHECK(test::contains(folder.refusal(head + "grid: {train.lr: [1, x]}"),
                       file + ":3: train.lr: expected a"));
  CHECK(test::contains(folder.refusal(head + "grid: {train.lr: [1, x]}"), "(case lr=x)"));
  CHECK(test::contains(folder.refusal(head + "set: {train.lrr: 1}"),
                       file + ":3: unknown key \"train.lrr\""));
  CHECK(test::contains(folder.refusal(head + "cases: {a: {ranks: 3, train.rows_per_pass: 5}}"),
                       "train.rows_per_pass"));
  CHECK(test::contains(folder.refusal(head + "cases: {a: {ranks: many}}"),
                       file + ":3: ranks: expected an integer from 1 to 65536, got many (case a)"));
  CHECK(test::contains(folder.refusal(head + "grid: {train.seed: [1, 1]}"),
                       "two cases would have the name seed=1"));
  CHECK(test::contains(folder.refusal(head + "cases: {ab: , cd: }\nbaseline: ac"),
                       "baseline: there is no case ac; expected one of ab, cd"));
  CHECK(test::contains(folder.refusal(head + "set: {train: {epochs: 3, steps: 10}}"),
                       "train.epochs: expected nothing beside train.steps, got 3 and 10 steps"));
  CHECK(test::contains(folder.refusal(head + "set: {train.save: false}\nevaluate: [--task, squad]"),
                       file + ":3: train.save: expected true, because evaluate needs the model"));
  CHECK(test::contains(folder.refusal("question: why?\ninclude: missing.yaml"), "no such file"));
  CHECK(test::contains(folder.refusal("question: why?\nset: {model.preset: gpt2-124m}"),
                       "data.train: expected at least one file (case r)"));
  CHECK(test::contains(folder.refusal(head + "full_size: {gpu: Z9}"),
                       file + ":3: full_size: gpu: expected one of "));
  CHECK(test::contains(folder.refusal(head + "evaluate: --task squad"),
                       "evaluate: expected a list of options"));
  CHECK(test::contains(folder.refusal(head + "evaluate: [--task, squd]"),
                       "evaluate: --task: expected squad, got squd"));
  CHECK(test::contains(folder.refusal(head + "evaluate: [--data, nope.json]"),
                       "evaluate: --data: nope.json: no such file"));
  CHECK(test::contains(folder.refusal(head + "columns: [f1]"),
                       "columns: f1: it is empty without evaluate"));
  CHECK(test::contains(folder.refusal(head + "columns: [full_size_fits]"),
                       "columns: full_size_fits: it is empty without full_size"));
}

}  // namespace
}  // namespace fsdp::tools
