// The configuration: every field survives writing and reading, overrides win, mistakes are named.
#include "tools/config/config.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"
#include "tools/config/config_fields.h"
#include "tools/config/config_values.h"

namespace fsdp::config {
namespace {

TrainConfig parse(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return parse_config(yaml, "x.yaml", overrides);
}

std::string refusal(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return test::error_of([&] { parse(yaml, overrides); });
}

TEST_CASE("an empty file gives the defaults") {
  for (const char* yaml : {"", "# nothing\n", "train:\n", "train: {}\n"}) {
    CHECK(to_yaml(parse(yaml)) == to_yaml(TrainConfig()));
  }
  const TrainConfig c = parse("");
  CHECK(c.train.optimizer.beta2 == 0.95);
  CHECK(c.data.sequence_length == 256);
  CHECK(c.fsdp.strategy == comm::Strategy::kFullShard);
}

// Gives every field another value than its default, one that the ranges allow.
struct Scramble {
  void change(bool& v) { v = !v; }
  void change(int64_t& v) { v += ++count; }
  void change(double& v) { v = v / 3 + 1e-3 / ++count; }
  void change(std::string& v) { v = "a \"b\"\n#\\ : é" + std::to_string(++count); }
  void change(std::vector<std::string>& v) { v = {"x, y", "", "[z" + std::to_string(++count)}; }
  void change(data::TextFormat& v) { v = data::TextFormat::kJsonl; }
  void change(data::LastBatch& v) { v = data::LastBatch::kDropLast; }
  void change(Decay& v) { v = Decay::kNone; }
  void change(comm::Strategy& v) { v = comm::Strategy::kHybridShard; }
  void change(comm::Accumulation& v) { v = comm::Accumulation::kReduceLast; }
  void change(LossMean& v) { v = LossMean::kRanks; }
  void change(LossScaling& v) { v = LossScaling::kFairseq; }
  void change(RecomputeMode& v) { v = RecomputeMode::kSelective; }
  void change(NormType& v) { v.power = std::numeric_limits<double>::infinity(); }
  void change(Wrap& v) { v = Wrap::kNone; }
  void change(comm::BackwardPrefetch& v) { v = comm::BackwardPrefetch::kPost; }
  void change(DType& v) { v = DType::kBF16; }
  void change(optim::ScheduleKind& v) { v = optim::ScheduleKind::kFairseqPolynomialDecay; }
  void change(optim::Ramp& v) { v = optim::Ramp::kOneMinusSqrt; }
  template <typename T>
  void change(std::optional<T>& v) {
    change(v.emplace());
  }
  template <typename T>
  void field(const char*, T& value, const char*, std::initializer_list<const char*> = {}) {
    const std::string before = value_text(value);
    change(value);
    CHECK(value_text(value) != before);
  }
  template <typename S>
  void section(const char*, const char*, S& value) {
    visit(*this, value);
  }
  int count = 0;
};

TEST_CASE("every field is written and read back") {
  TrainConfig changed;
  Scramble scramble;
  visit(scramble, changed);
  changed.train.loss_scale.growth = 3;
  changed.model.preset.clear();  // model.path and model.preset exclude each other
  changed.fsdp.wrap = Wrap::kSize;
  changed.fsdp.wrap_classes.clear();  // belong to another wrap policy
  const std::string yaml = to_yaml(changed);
  CHECK(to_yaml(parse(yaml)) == yaml);
  changed.fsdp.wrap = Wrap::kClass;
  changed.fsdp.wrap_classes = {"A, B", "C"};
  changed.fsdp.min_num_params.reset();
  CHECK(to_yaml(parse(to_yaml(changed))) == to_yaml(changed));
  CHECK(yaml.find("\n  optimizer:\n    beta1: ") != std::string::npos);
}

TEST_CASE("the help names every key of the file form") {
  const std::string help = config_help();
  for (const char* key : {"model.path", "train.schedule.kind", "sample.top_k"}) {
    CHECK(test::contains(help, key));
  }
  CHECK(test::contains(help,
                       "one of full_shard, shard_grad_op, shard_optimizer, no_shard, "
                       "hybrid_shard, hybrid_shard_zero2)"));
}

TEST_CASE("a file and overrides") {
  const std::string yaml = "train:\n  lr: 1e-3\n  steps: 20\ndata:\n  train: a.txt\n";
  const TrainConfig c =
      parse(yaml, {"train.lr=.5", "data.train=[b.txt, c.txt]", "train.seed=7", "train={steps: 3}",
                   "sample.prompt=e2e4: x ", "runtime.name=\"quoted\"",
                   "model.path=", "train.optimizer.beta1=0"});
  CHECK(c.train.lr == 0.5);
  CHECK(c.train.steps == 3);
  CHECK(c.train.seed == 7);
  CHECK(c.data.train == std::vector<std::string>{"b.txt", "c.txt"});
  CHECK(parse(yaml).data.train == std::vector<std::string>{"a.txt"});
  CHECK(c.sample.prompt == "e2e4: x ");
  CHECK(parse("", {"sample.prompt=[a"}).sample.prompt == "[a");
  CHECK(c.runtime.name == "quoted");
  CHECK(c.model.path == "");
  CHECK(c.train.optimizer.beta1 == 0);
}

TEST_CASE("names of PyTorch, Hugging Face and accelerate") {
  const TrainConfig c = parse(
      "fsdp: {fsdp_sharding_strategy: NO_SHARD, wrap: NO_WRAP,\n"
      "       backward_prefetch: BACKWARD_POST}\n"
      "train: {learning_rate: 1, dtype: bfloat16,\n"
      "        schedule: {name: constant_with_warmup}}");
  CHECK(c.fsdp.strategy == comm::Strategy::kNoShard);
  CHECK(c.fsdp.wrap == Wrap::kNone);
  CHECK(c.fsdp.backward_prefetch == comm::BackwardPrefetch::kPost);
  CHECK(c.train.lr == 1);
  CHECK(c.train.dtype == DType::kBF16);
  CHECK(test::contains(to_yaml(c), "kind: constant\n"));
}

TEST_CASE("wrap policies by accelerate's names") {
  const TrainConfig c =
      parse("fsdp: {fsdp_auto_wrap_policy: SIZE_BASED_WRAP, fsdp_min_num_params: 2000}");
  CHECK(c.fsdp.wrap == Wrap::kSize);
  CHECK(c.fsdp.min_num_params == 2000);
  const TrainConfig d = parse(
      "fsdp: {fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP,\n"
      "       fsdp_transformer_layer_cls_to_wrap: GPT2Block}");
  CHECK(d.fsdp.wrap == Wrap::kTransformerBlock);
  CHECK(d.fsdp.wrap_classes == std::vector<std::string>{"GPT2Block"});
}

TEST_CASE("unknown keys name the file, the line and the nearest known key") {
  CHECK(refusal("train:\n  steps: 1\n  learning_rte: 1\n") ==
        "x.yaml:3: unknown key \"train.learning_rte\"; the nearest known key is "
        "\"train.learning_rate\"");
  CHECK(refusal("train:\n  stpes: 1\n") ==
        "x.yaml:2: unknown key \"train.stpes\"; the nearest known key is \"train.steps\"");
  CHECK(refusal("lr: 1\n") ==
        "x.yaml:1: unknown key \"lr\"; the nearest known key is \"train.lr\"");
  CHECK(refusal("\ntrian:\n  lr: 1\n") ==
        "x.yaml:2: unknown key \"trian\"; the nearest known key is \"train\"");
  CHECK(refusal("", {"train.sed=1"}) ==
        "--set train.sed=1: unknown key \"train.sed\"; the nearest known key is \"train.seed\"");
  CHECK(refusal("train.lr: 1\n") ==
        "x.yaml:1: key \"train.lr\": sections are nested in the file, not joined by dots");
}

TEST_CASE("wrong types name the key, what was expected and what was there") {
  CHECK(refusal("train:\n  lr: high\n") == "x.yaml:2: train.lr: expected a number, got \"high\"");
  CHECK(refusal("train:\n  steps: 1.5\n") ==
        "x.yaml:2: train.steps: expected an integer, got \"1.5\"");
  CHECK(refusal("train:\n  steps: \"5\"\n") ==
        "x.yaml:2: train.steps: expected an integer, got \"5\"");
  CHECK(refusal("train:\n  steps:\n") == "x.yaml:2: train.steps: expected an integer, got nothing");
  CHECK(refusal("train:\n  steps: [1]\n") ==
        "x.yaml:2: train.steps: expected an integer, got a list");
  CHECK(refusal("train: 5\n") == "x.yaml:1: train: expected a section, got \"5\"");
  CHECK(refusal("data:\n  train: {a: b}\n") ==
        "x.yaml:2: data.train: expected text or a list of texts, got a section");
  CHECK(refusal("fsdp:\n  strategy: full\n") ==
        "x.yaml:2: fsdp.strategy: expected one of full_shard, shard_grad_op, shard_optimizer, "
        "no_shard, hybrid_shard, hybrid_shard_zero2, got \"full\"");
  CHECK(refusal("model:\n  tie_embeddings: maybe\n") ==
        "x.yaml:2: model.tie_embeddings: expected auto or true or false, got \"maybe\"");
  CHECK(refusal("", {"train.lr=inf"}) ==
        "--set train.lr=inf: train.lr: expected a number, got \"inf\"");
  CHECK(refusal("- 1\n") == "x.yaml:1: expected sections, got a list");
}

TEST_CASE("keys given twice") {
  CHECK(refusal("train:\n  lr: 1\n  lr: 2\n") ==
        "x.yaml:3: key \"train.lr\" is given twice (first at x.yaml:2)");
  CHECK(refusal("train:\n  lr: 1\n  learning_rate: 2\n") ==
        "x.yaml:3: key \"train.lr\" is given twice (as \"lr\" and \"learning_rate\")");
}

TEST_CASE("malformed YAML, overrides and missing files") {
  CHECK(test::contains(refusal("train: [1\nx: y"), "x.yaml:"));
  CHECK(test::contains(refusal("a: b\n---\nc: d\n"), "expected one YAML document, got 2"));
  CHECK(refusal("", {"train.lr"}) == "--set train.lr: expected key=value");
  CHECK(refusal("", {"=1"}) == "--set =1: expected key=value");
  CHECK(test::error_of([] { read_config("/no/such.yaml", {}); }) ==
        "/no/such.yaml: cannot open: No such file or directory");
}

TEST_CASE("options of a wrap policy that another one would ignore") {
  CHECK(refusal("", {"fsdp.wrap=class"}) ==
        "fsdp.wrap_classes: wrap: class needs the names of classes");
  CHECK(refusal("", {"fsdp.wrap=size", "fsdp.wrap_classes=[A]"}) ==
        "--set fsdp.wrap_classes=[A]: fsdp.wrap_classes: belongs to wrap: class or "
        "transformer_block");
  CHECK(refusal("", {"fsdp.min_num_params=5"}) ==
        "--set fsdp.min_num_params=5: fsdp.min_num_params: belongs to wrap: size");
  CHECK(refusal("", {"fsdp.wrap=size", "fsdp.min_num_params=0"}) ==
        "--set fsdp.min_num_params=0: fsdp.min_num_params: expected at least 1, got 0");
}

TEST_CASE("ranges") {
  CHECK(refusal("", {"train.batch=0"}) ==
        "--set train.batch=0: train.batch: expected at least 1, got 0");
  CHECK(
      refusal("", {"train.optimizer.beta1=1"}) ==
      "--set train.optimizer.beta1=1: train.optimizer.beta1: expected a number from 0 to below 1, "
      "got 1");
  CHECK(refusal("", {"train.schedule.min_lr=1e-5"}) ==
        "--set train.schedule.min_lr=1e-5: train.schedule.min_lr: cosine does not use it; "
        "cosine_with_min_lr and polynomial do");
  CHECK(refusal("", {"model.path=a", "model.preset=b"}) ==
        "--set model.preset=b: model.preset: expected nothing beside model.path, got \"b\"");
  CHECK(refusal("train:\n  steps: 20\n  batch: 0\n") ==
        "x.yaml:3: train.batch: expected at least 1, got 0");
}

TEST_CASE("the schedule of a run ends with it unless it says otherwise") {
  const std::vector<std::string> linear{"train.schedule.kind=linear", "train.steps=10",
                                        "train.lr=1", "train.schedule.warmup=2"};
  CHECK(parse("", linear).schedule().rate(1) == 0.5);
  CHECK(parse("", linear).schedule().rate(6) == 0.5);
  CHECK(parse("train: {schedule: {total: 18}}", linear).schedule().rate(6) == 0.75);
}

}  // namespace
}  // namespace fsdp::config
