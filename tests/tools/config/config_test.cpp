// The configuration: every field survives writing and reading, overrides win, mistakes are named.
// Requirements: S2.3.
#include "tools/config/config.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "core/error.h"
#include "optim/optimizer_kind.h"
#include "tests/support/listed_options.h"
#include "tests/support/refused.h"
#include "tests/support/temp_folder.h"
#include "tools/config/config_values.h"
#include "tools/config/key_values.h"
#include "tools/config/options.h"

namespace fsdp::config {
namespace {

TrainConfig parse(const std::string& yaml, const std::vector<Override>& overrides = {}) {
  return parse_config(yaml, "x.yaml", overrides);
}

std::string refusal(const std::string& yaml, const std::vector<Override>& overrides = {}) {
  return test::error_of([&] { parse(yaml, overrides); });
}

TEST_CASE("what is refused, of a file and what is typed beside it") {
  test::check_refused("config_refused.json", [](const Json& each) {
    std::vector<Override> overrides;
    for (const Json& typed : each.contains("set") ? each["set"] : Json::array()) {
      overrides.emplace_back(typed.text());
    }
    return refusal(each.value("file", ""), overrides);
  });
}

TEST_CASE("an empty file gives the defaults") {
  for (const char* yaml : {"", "# nothing\n", "train:\n", "train: {}\n"}) {
    CHECK(to_yaml(parse(yaml)) == to_yaml(TrainConfig()));
  }
  const TrainConfig c = parse("");
  CHECK(c.train.optimizer.beta2 == 0.95);
  CHECK(c.data.sequence_length == 256);
  CHECK(c.fsdp.options.strategy == comm::Strategy::kFullShard);
}

// Gives every field another value than its default, one that the ranges allow.
struct Scramble : KeyedVisitor {
  void option(const char*, Value value, const char*, const OptionField& about) override {
    const std::string before = value.text();
    test::AnotherValue{about, ++count}.change(value);
    CHECK(value.text() != before);
  }
  void list(const char*, Value, const char*, const OptionField&, Sections& sections) override {
    for (int i = 0; i < 2; ++i) sections.add("", *this);
  }
  int count = 0;
};

// Every field changed, but for groups of options that exclude each other: they have their defaults.
TrainConfig changed_config() {
  TrainConfig changed;
  Scramble scramble;
  visit(scramble, changed);
  const std::string last(optim::name_of(optim::kOptimizerKinds.back()));
  CHECK(test::contains(to_yaml(changed), "\n  optimizer:\n    kind: " + last + "\n    beta1: "));
  changed.model.preset.clear();
  changed.lora.path.clear();
  changed.data.format = data::TextFormat::kAuto;  // data.field and keys of chats have an effect
  changed.data.chat.date = "2026-01-31";          // no text is one
  changed.data.row_template.clear(), changed.data.synthetic_rows.reset();  // nor has it with these
  changed.data.pack = data::Pack::kExamples, changed.data.set_epoch = true;
  changed.data.shuffle_rule = data::ShuffleRule::kFeistel;  // fixed_order
  changed.fsdp.options.update_in_backward = false;          // nor clipping with it
  changed.train.optimizer = {}, changed.train.loss_scale.growth = 3, changed.train.save = true;
  changed.runtime.monitor_s = 0.5;
  changed.runtime.name = "a \"b\": \u00e9";
  changed.fsdp.options.offload = comm::Offload::kNvme;  // which has a folder
  changed.train.epochs = 0;
  changed.data.sources.clear();                                        // beside data.train
  changed.data.sample_break_mode = DataSection().sample_break_mode;    // of fairseq
  changed.data.pack_window = DataSection().pack_window;                // of documents
  changed.data.long_rows = DataSection().long_rows;                    // the same
  changed.data.document_attention = DataSection().document_attention;  // of data.pack: stream
  changed.train.loss_mean = LossMean::kTokens;                         // which fixed_order asks for
  changed.train.attention_deterministic = true;                        // and for this
  return changed;
}

// The text of the configuration reads as itself, and these keys in it are no defaults.
void check_survives(const TrainConfig& changed,
                    std::initializer_list<std::pair<const char*, std::string>> expected) {
  const std::string text = to_yaml(changed);
  CHECK(refusal(text) == "");
  CHECK(to_yaml(parse(text)) == text);
  const auto values = key_values(changed), defaults = key_values({});
  for (const auto& [key, value] : expected) {
    CAPTURE(key);
    const auto found =
        std::find(values.begin(), values.end(), std::pair<std::string, std::string>(key, value));
    REQUIRE(found != values.end());
    CHECK(*found != defaults[static_cast<size_t>(found - values.begin())]);
  }
}

TEST_CASE("every field is written and read back: units by size, and prefetch") {
  TrainConfig changed = changed_config();
  changed.train.schedule = {.kind = optim::ScheduleKind::kFairseqPolynomialDecay,
                            .total = 9,
                            .min_lr = 0.5,
                            .power = 3,
                            .zero_warmup = 4};
  changed.fsdp.wrap = Wrap::kSize;
  changed.fsdp.wrap_classes.clear();
  changed.fsdp.forward_prefetch = true;
  changed.fsdp.options.reshard_after_forward.reset();
  changed.sample.temperature = 0.25;
  changed.runtime.launch.shared_memory = true;
  check_survives(changed, {{"train.schedule.power", "3"},
                           {"train.schedule.zero_warmup", "4"},
                           {"fsdp.prefetch_depth", fmt::format("{}", changed.fsdp.prefetch_depth)},
                           {"sample.temperature", "0.25"}});
}

TEST_CASE("every field is written and read back: units by class, without prefetch") {
  TrainConfig changed = changed_config();
  changed.train.schedule = {.kind = optim::ScheduleKind::kWarmupStableDecay,
                            .warmup = 2,
                            .cycles = 3,
                            .decay_steps = 5,
                            .warmup_shape = optim::Ramp::kOneMinusSqrt};
  changed.fsdp.wrap = Wrap::kClass;
  changed.fsdp.wrap_classes = {"A, B", "C"};
  changed.fsdp.min_num_params.reset();
  changed.fsdp.forward_prefetch = false;
  changed.fsdp.prefetch_depth = 1;
  changed.fsdp.options.reshard_after_forward = false;
  changed.fsdp.reshard_group_size = 0;
  changed.sample.temperature = 0.25;
  changed.runtime.launch.shared_memory = false;
  changed.runtime.launch.shared_memory_limit_mib.reset();
  check_survives(changed, {{"train.schedule.warmup_shape", "1-sqrt"},
                           {"train.schedule.cycles", "3"},
                           {"fsdp.forward_prefetch", "false"},
                           {"fsdp.reshard_after_forward", "false"},
                           {"runtime.shared_memory", "false"}});
  changed.train.schedule = {.kind = optim::ScheduleKind::kInverseSqrt, .timescale = 3};
  check_survives(changed, {{"train.schedule.timescale", "3"}});
}

TEST_CASE("LoRA: PEFT's names of keys, and values out of range") {
  const LoraSection c = parse_config(
                            "lora: {r: 4, lora_alpha: 16, lora_dropout: 0.1,\n"
                            "       target_modules: [q_proj, v_proj], use_rslora: true}",
                            "test.yaml", {})
                            .lora;
  CHECK(c.r == 4);
  CHECK(c.alpha == 16);
  CHECK(c.dropout == 0.1);
  CHECK(c.targets == std::vector<std::string>{"q_proj", "v_proj"});
  CHECK(c.rslora);
  const TrainConfig loaded = parse("lora: {path: an adapter, dropout: 0.25}");
  CHECK(loaded.lora.path == "an adapter");
  CHECK(to_yaml(parse(to_yaml(loaded))) == to_yaml(loaded));
}

void check_without_effect(const std::string& option, std::vector<Override> others = {}) {
  others.push_back(option);
  const std::string key = option.substr(0, option.find('=')), text = refusal("", others);
  CAPTURE(text);
  CHECK(text.starts_with(fmt::format("--set {}: {}: ", option, key)));
  CHECK(test::contains(text, " has no effect with"));
}

TEST_CASE("options without effect are refused") {
  check_without_effect("train.schedule.total=2", {"train.schedule.kind=constant"});
  check_without_effect("train.schedule.cycles=2", {"train.schedule.kind=linear"});
  check_without_effect("train.schedule.timescale=2");
  check_without_effect("train.schedule.decay_steps=2");
  check_without_effect("train.schedule.warmup_shape=cosine");
  check_without_effect("train.schedule.decay_shape=linear");
  check_without_effect("train.schedule.zero_warmup=2");
  check_without_effect("train.loss_scale.initial=2");
  check_without_effect("train.loss_scale.floor=2", {"train.dtype=bf16"});
  check_without_effect("train.recompute.every=2");
  check_without_effect("train.eval_every=2");
  check_without_effect("sample.prompt=x");
  check_without_effect("sample.top_k=2", {"sample.tokens=3", "sample.temperature=0"});
  check_without_effect("runtime.shared_memory_limit_mib=2", {"runtime.shared_memory=false"});
  check_without_effect("lora.alpha=16");
  check_without_effect("lora.targets=q_proj");
  check_without_effect("lora.rslora=true");
  check_without_effect("lora.dropout=0.1");
  for (const std::string option : {"lora.r=4", "lora.alpha=16", "lora.targets=c_attn"}) {
    CHECK(test::contains(refusal("", {"lora.path=adapter", option}),
                         "has no effect beside lora.path"));
  }
}

TEST_CASE("sharding options that the strategy leaves without effect") {
  check_without_effect("fsdp.prefetch_depth=2", {"fsdp.forward_prefetch=false"});
  check_without_effect("fsdp.reshard_after_forward=true", {"fsdp.strategy=no_shard"});
  check_without_effect("fsdp.reshard_group_size=2", {"fsdp.strategy=shard_grad_op"});
  check_without_effect("fsdp.reshard_group_size=2", {"fsdp.reshard_after_forward=false"});
  for (const char* option : {"fsdp.backward_prefetch=post", "fsdp.units_in_flight=3"}) {
    for (const char* keeps : {"fsdp.strategy=no_shard", "fsdp.strategy=shard_grad_op",
                              "fsdp.reshard_after_forward=false"}) {
      check_without_effect(option, {keeps});
    }
    CHECK(refusal("", {option}) == "");
    CHECK(refusal("fsdp:\n  units:\n  - {match: a, reshard_after_forward: true}\n",
                  {option, "fsdp.strategy=shard_grad_op"}) == "");
  }
  check_without_effect("fsdp.forward_prefetch=false", {"fsdp.strategy=no_shard"});
  check_without_effect("fsdp.prefetch_depth=2", {"fsdp.strategy=no_shard"});
  check_without_effect("fsdp.accumulation=reduce_last");
  for (const char* strategy : {"full_shard", "shard_grad_op", "shard_optimizer"}) {
    check_without_effect("fsdp.accumulation=reduce_scatter_each",
                         {"train.micro_steps=2", fmt::format("fsdp.strategy={}", strategy)});
  }
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

template <typename T>
void check_names(std::initializer_list<T> choices) {
  for (const T choice : choices) {
    CAPTURE(comm::choice_name(choice));
    CHECK(value_text(choice) == comm::choice_name(choice));
  }
}

TEST_CASE("sharding tells other ranks its choices by the names of the file") {
  using enum comm::Strategy;
  check_names(
      {kFullShard, kShardGradOp, kShardOptimizer, kNoShard, kHybridShard, kHybridShardZero2});
  check_names(
      {comm::BackwardPrefetch::kPre, comm::BackwardPrefetch::kPost, comm::BackwardPrefetch::kNone});
  check_names(
      {comm::Offload::kNone, comm::Offload::kOptimizer, comm::Offload::kAll, comm::Offload::kNvme});
  check_names({comm::Accumulation::kReduceEach, comm::Accumulation::kReduceScatterEach,
               comm::Accumulation::kReduceLast});
}

TEST_CASE("a file and overrides") {
  const std::string yaml = "train:\n  lr: 1e-3\n  steps: 20\ndata:\n  train: a.txt\n";
  const TrainConfig c =
      parse(yaml, {"train.lr=.5", "data.train=[b.txt, c.txt]", "train.seed=7", "train={steps: 3}",
                   "sample.prompt=e2e4: x ", "sample.tokens=1", "runtime.name=\"quoted\"",
                   "model.path=", "train.optimizer.beta1=0"});
  CHECK(c.train.lr == 0.5);
  CHECK(c.train.steps == 3);
  CHECK(c.train.seed == 7);
  CHECK(c.data.train == std::vector<std::string>{"b.txt", "c.txt"});
  CHECK(parse(yaml).data.train == std::vector<std::string>{"a.txt"});
  CHECK(c.sample.prompt == "e2e4: x ");
  CHECK(parse("", {"sample.prompt=[a", "sample.tokens=1"}).sample.prompt == "[a");
  CHECK(c.runtime.name == "quoted");
  CHECK(c.model.path == "");
  CHECK(c.train.optimizer.beta1 == 0);
}

TEST_CASE("the name of a run is no path") {
  for (const char* name : {"a/../../b", "/tmp/x", "a/"}) {
    CHECK(test::contains(
        test::error_of([&] { parse("", {std::string("runtime.name=") + name}); }),
        std::string("runtime.name: expected a name without /, got \"") + name + "\""));
  }
  CHECK(test::contains(test::error_of([] { parse("", {"runtime.name="}); }),
                       "runtime.name: expected a name, got an empty text"));
  CHECK(test::error_of([] { parse("", {"runtime.name=a\nb\x7f"}); }) ==
        "--set runtime.name=a\\x0ab\\x7f: runtime.name: expected a name without control characters "
        "such as the end of a line, got \"a\\nb\\u007f\"");
}

TEST_CASE("names of PyTorch, Hugging Face and accelerate") {
  const TrainConfig c = parse(
      "fsdp: {fsdp_sharding_strategy: HYBRID_SHARD, shard_size: 2, wrap: NO_WRAP,\n"
      "       backward_prefetch: BACKWARD_POST}\n"
      "train: {learning_rate: 1, dtype: bfloat16,\n"
      "        schedule: {name: constant_with_warmup}}");
  CHECK(c.fsdp.options.strategy == comm::Strategy::kHybridShard);
  CHECK(c.fsdp.wrap == Wrap::kNone);
  CHECK(c.fsdp.options.backward_prefetch == comm::BackwardPrefetch::kPost);
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

TEST_CASE("escapes of bytes that are no UTF-8 count within double quotes alone") {
  const auto run_dir = [](const std::string& yaml) {
    return parse("runtime: {run_dir: " + yaml + "}").runtime.run_dir;
  };
  CHECK(run_dir(R"("a\udce9")") == "a\xe9");
  CHECK(run_dir(R"('a\udce9')") == R"(a\udce9)");
  CHECK(run_dir(R"(C:\uDCE9)") == R"(C:\uDCE9)");
}

TEST_CASE("malformed YAML, overrides and missing files") {
  const std::string shown = "x.yaml:1: expected sections, got \"" + std::string(79, 'x');
  CHECK(refusal(std::string(5000, 'x')) == shown + "x...\"");
  CHECK(refusal(std::string(79, 'x') + "ééé") == shown + "...\"");
  for (const char* text : {"train.freeze=[\"*\"]", "train.freeze=*", "train.freeze=[ab]*"}) {
    CHECK(refusal("", {text}) == "");
  }
  CHECK(test::error_of([] { read_config("/no/such.yaml", {}); }) ==
        "/no/such.yaml: cannot open: No such file or directory");
}

TEST_CASE("a warm-up of a number of steps, or of a share of them that is rounded up") {
  const auto warmup = [](const std::vector<Override>& overrides) {
    return parse_config("", "", overrides).schedule().warmup;
  };
  CHECK(warmup({"train.schedule.warmup=7"}) == 7);
  CHECK(warmup({"train.schedule.warmup=10%", "train.steps=21"}) == 3);
  CHECK(warmup({"train.schedule.warmup=10%", "train.steps=20"}) == 2);
  CHECK(warmup({"train.schedule.warmup=2.5%", "train.schedule.total=40", "train.steps=9"}) == 1);
  CHECK(warmup({"train.schedule.warmup=0%"}) == 0);
  // Of epochs, the number of steps is known when the data is.
  const TrainConfig c = parse_config("train: {epochs: 3, schedule: {warmup: 10%}}", "", {});
  CHECK(c.in_steps(7).schedule().warmup == 3);
  CHECK(parse_config(to_yaml(c), "", {}).train.schedule.warmup == c.train.schedule.warmup);
}

TEST_CASE("units that differ: a list of sections") {
  const TrainConfig c = parse(
      "fsdp:\n  units:\n  - {match: root, param_dtype: float32}\n"
      "  - match: blocks.[01]\n    reshard_after_forward: no\n");
  REQUIRE(c.fsdp.options.units.size() == 2);
  CHECK(c.fsdp.options.units[0].param_dtype == DType::kF32);
  CHECK(c.fsdp.options.units[1].reshard_after_forward == false);
  CHECK(!c.fsdp.options.units[1].param_dtype);
  const std::string yaml = to_yaml(c);
  CHECK(test::contains(yaml,
                       "  units: [{match: \"root\", param_dtype: f32}, "
                       "{match: \"blocks.[01]\", reshard_after_forward: false}]\n"));
  CHECK(to_yaml(parse(yaml)) == yaml);
  const TrainConfig set =
      parse_config(yaml, "x.yaml", {"fsdp.units=[{match: a b, strategy: zero2}]"});
  REQUIRE(set.fsdp.options.units.size() == 1);  // instead of those of the file
  CHECK(set.fsdp.options.units[0].match == "a b");
}

TEST_CASE("ranges of numbers") {
  for (const char* option : {"model.norm_epsilon=0",
                             "model.rope_theta=-1",
                             "model.init_deviation=2",
                             "model.dropout=1",
                             "train.optimizer.epsilon=0",
                             "fsdp.divide_factor=1e-300",
                             "train.loss_scale.initial=1e39",
                             "train.loss_scale.initial=1e-46",
                             "train.loss_scale.initial=0",
                             "train.loss_scale.growth=0.5",
                             "train.loss_scale.backoff=1.5",
                             "train.loss_scale.backoff=0",
                             "train.loss_scale.tolerance=2",
                             "train.loss_scale.floor=-1",
                             "train.lr=nan",
                             "sample.temperature=-1",
                             "runtime.monitor_s=-1",
                             "runtime.monitor_s=0.001",
                             "runtime.monitor_s=1e9",
                             "runtime.monitor_later_s=-1",
                             "train.log_every=0",
                             "train.log_every=no"}) {
    const std::string text = refusal("", {"train.dtype=f16", "sample.tokens=1", option});
    const std::string key = std::string(option).substr(0, std::string(option).find('='));
    CAPTURE(text);
    CHECK(test::contains(text, key + ": expected"));
    CHECK(text.size() < 150);
  }
}

TEST_CASE("the schedule of a run ends with it unless it says otherwise") {
  const std::vector<Override> linear{"train.schedule.kind=linear", "train.steps=10", "train.lr=1",
                                     "train.schedule.warmup=2"};
  CHECK(parse("", linear).schedule().rate(1) == 0.5);
  CHECK(parse("", linear).schedule().rate(6) == 0.5);
  CHECK(parse("train: {schedule: {total: 18}}", linear).schedule().rate(6) == 0.75);
}

TEST_CASE("integers that are too large") {
  for (const char* key : {"model.vocab_size", "model.layers", "train.batch", "train.micro_steps",
                          "data.sequence_length", "lora.r"}) {
    CAPTURE(key);
    CHECK(test::contains(refusal("", {std::string(key) + "=2147483648"}),
                         "expected at most 2147483647, got "));
  }
}

}  // namespace
}  // namespace fsdp::config
