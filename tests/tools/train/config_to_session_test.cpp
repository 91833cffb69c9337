// From configuration to model and session options.
// Requirements: S1.14, S1.15.
#include "tools/train/config_to_session.h"

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/support/listed_options.h"
#include "tests/support/temp_folder.h"
#include "tools/config/key_values.h"
#include "tools/train/data_paths.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

config::TrainConfig config_of(const std::string& yaml) {
  return config::parse_config(yaml, "test.yaml", {});
}

std::string error_of(const std::string& yaml) {
  return test::error_of([&] { model_config(config_of(yaml), 257); });
}

TEST_CASE("train setup: wrap policies") {
  cpu::CpuBackend backend;
  models::ModelConfig small = models::preset("gpt2-124m");
  small.layers = 2;
  models::CausalLM model(small, backend, DType::kF32, 1);
  const auto units = [&](const std::string& fsdp) {
    const config::TrainConfig config = config_of("fsdp: {" + fsdp + "}");
    const comm::WrapPolicy policy = session_options(config, small, 1, {}).wrap;
    std::string names;
    if (!policy) return std::string("default");
    for (const auto& unit : comm::unchecked_units(model, policy)) names += unit.name + " ";
    return names;
  };
  CHECK(units("wrap: transformer_block") == "default");
  CHECK(units("wrap: none") == "root ");
  CHECK(units("wrap: class, wrap_classes: [GPT2MLP]") == "root blocks.0.mlp blocks.1.mlp ");
  CHECK(units("auto_wrap_policy: TRANSFORMER_BASED_WRAP,"
              "fsdp_transformer_layer_cls_to_wrap: \"Embedding, GPT2Block\"") ==
        "root embedding.tokens embedding.positions blocks.0 blocks.1 ");
  // PyTorch's default, 100 million: nothing here is as large.
  CHECK(units("wrap: SIZE_BASED_WRAP") == "root ");
  CHECK(units("wrap: size, min_num_params: 7000000") ==
        "root embedding.tokens blocks.0 blocks.1 head ");
}

TEST_CASE("train setup: whether embedding and head are units of their own") {
  cpu::CpuBackend backend;
  models::ModelConfig model = models::preset("gpt2-124m");
  model.layers = 2;
  const auto units = [&](const std::string& fsdp) {
    const PlacedOptions options = session_options(config_of("fsdp: {" + fsdp + "}"), model, 2, {});
    models::CausalLM tree(model, backend, DType::kF32, 1);
    std::string names;
    for (const auto& unit : comm::plan_units(tree, wrap_of(options))) {
      if (!unit.parameters.empty()) names += unit.name + " ";
    }
    return names;
  };
  const auto refusal = [&](const std::string& fsdp) {
    return test::error_of([&] { units(fsdp); });
  };
  CHECK(units("") == "root blocks.0 blocks.1 ");  // the head is tied
  CHECK(units("root: whole") == "root blocks.0 blocks.1 ");
  CHECK(refusal("root: split") ==
        "test.yaml:1: fsdp.root: split: the head of this model is tied to its embedding, and what "
        "they share must lie in one unit; expected whole (or model.tie_embeddings: false)");
  model.tied_head = false;
  CHECK(units("") == "embedding blocks.0 blocks.1 head ");
  CHECK(units("root: whole") == "root blocks.0 blocks.1 ");
  CHECK(units("wrap: class, wrap_classes: [GPT2MLP]") ==
        "root embedding blocks.0.mlp blocks.1.mlp head ");  // the rest of the blocks is the root's
  CHECK(units("wrap: class, wrap_classes: [GPT2Block, Embedding]") ==
        "embedding.tokens embedding.positions blocks.0 blocks.1 head ");
  CHECK(units("wrap: class, wrap_classes: [GPT2Block, Linear]") ==
        "root embedding blocks.0 blocks.1 head ");  // the final norm stays in the root
  CHECK(units("wrap: none") == "root ");
  CHECK(refusal("wrap: none, root: split") ==
        "test.yaml:1: fsdp.root: split has no effect with wrap: none");
  CHECK(units("wrap: size, min_num_params: 7000000") ==
        "root embedding.tokens blocks.0 blocks.1 head ");
  CHECK(units("wrap: size, min_num_params: 50000000, root: split") == "root base ");
  CHECK(units("wrap: size, root: split") == "root embedding head ");
  CHECK(units("units: [{match: head, reduce_dtype: bf16}]") == "embedding blocks.0 blocks.1 head ");
}

TEST_CASE("train setup: options of the session") {
  const config::TrainConfig config = config_of(
      "model: {preset: gpt2-124m}\n"
      "train: {dtype: bf16, clip_norm: 0.5, optimizer: {beta2: 0.99, decay: all}}\n"
      "fsdp: {strategy: hybrid_shard, shard_size: 1, wrap: none, backward_prefetch: post}\n");
  const PlacedOptions options =
      session_options(config, model_config(config, 257), 1, {.cpu = {.threads = 3}});
  CHECK(options.fsdp.strategy == comm::Strategy::kHybridShard);
  CHECK(options.fsdp.param_dtype == DType::kBF16);
  CHECK(options.fsdp.reduce_dtype == DType::kF32);
  CHECK(options.fsdp.backward_prefetch == comm::BackwardPrefetch::kPost);
  REQUIRE(options.wrap);
  CHECK(options.optimizer.beta2 == 0.99);
  CHECK(options.decay == Decay::kAll);
  CHECK(options.clip_norm == 0.5);
  CHECK(options.backend.cpu.threads == 3);
}

TEST_CASE("train setup: every way of sharding reaches the session") {
  const config::TrainConfig config = config_of(
      "model: {preset: gpt2-124m}\n"
      "train: {micro_steps: 3, loss_mean: ranks, clip_type: inf, freeze: ['*.wte.*'],\n"
      "        recompute: {mode: full, every: 2}}\n"
      "fsdp: {strategy: hybrid_shard_zero2, shard_size: 2, reshard_after_forward: true,\n"
      "       prefetch_depth: 2, units_in_flight: 3, separate_reduce: false,\n"
      "       release_arena: true,\n"
      "       accumulation: reduce_scatter_each, divide_factor: 3, force_sum: true,\n"
      "       absent_is_zero: true, reshard_group_size: 1}\n");
  const PlacedOptions options = session_options(config, {}, 2, {});
  CHECK(options.fsdp.strategy == comm::Strategy::kHybridShardZero2);
  CHECK(options.fsdp.shard_size == 2);
  CHECK(options.fsdp.reshard_after_forward == true);
  CHECK(options.fsdp.reshard_group_size == 1);
  CHECK(options.fsdp.forward_prefetch == 2);
  CHECK(options.fsdp.units_in_flight == 3);
  CHECK(!options.fsdp.separate_reduce);
  CHECK(options.fsdp.release_arena);
  CHECK(options.fsdp.accumulation == comm::Accumulation::kReduceScatterEach);
  CHECK(options.fsdp.divide_factor == 3.0);
  CHECK(options.fsdp.force_sum);
  CHECK(options.fsdp.absent_is_zero);
  CHECK(!options.fsdp.fixed_order);
  CHECK(options.fsdp.micro_steps == 3);
  CHECK(options.loss_mean == LossMean::kRanks);
  CHECK(std::isinf(options.clip_power));
  CHECK(options.recompute == RecomputeMode::kFull);
  CHECK(options.recompute_every == 2);
  CHECK(options.frozen == std::vector<std::string>{"*.wte.*"});
  CHECK(session_options(config_of("fsdp: {forward_prefetch: false}"), {}, 1, {})
            .fsdp.forward_prefetch == 0);
  // More than an int holds: the most it holds, not what a cast leaves.
  CHECK(session_options(config_of("fsdp: {prefetch_depth: 4294967297}"), {}, 1, {})
            .fsdp.forward_prefetch == std::numeric_limits<int>::max());
}

TEST_CASE("train setup: stochastic rounding has the run's seed, and is of bf16") {
  const auto seed_of = [](const std::string& train) {
    return session_options(config_of("train: {" + train + "}"), {}, 1, {}).fsdp.rounding_seed;
  };
  CHECK(seed_of("dtype: bf16, seed: 7") == std::nullopt);
  CHECK(seed_of("dtype: bf16, seed: 7, stochastic_rounding: true") == uint64_t{7});
  for (const char* dtype : {"f32", "f16", "f64"}) {
    CHECK(test::error_of(
              [&] { seed_of(fmt::format("dtype: {}, stochastic_rounding: true", dtype)); }) ==
          fmt::format("test.yaml:1: train.stochastic_rounding: rounds master weights to bf16, "
                      "but the computation is in {}",
                      dtype));
  }
  const config::TrainConfig one_unit = config_of(
      "train: {stochastic_rounding: true}\nfsdp: {units: [{match: head, param_dtype: bf16}]}\n");
  CHECK(session_options(one_unit, {}, 1, {}).fsdp.rounding_seed == uint64_t{42});
}

TEST_CASE("train setup: masters of 16 bits are rounded by the optimizer, not on their way") {
  const auto options_of = [](const std::string& text) {
    return session_options(config_of(text), {}, 1, {});
  };
  const PlacedOptions narrow = options_of("train: {master_dtype: bf16, stochastic_rounding: true}");
  CHECK(narrow.fsdp.master_dtype == DType::kBF16);
  CHECK(!narrow.fsdp.rounding_seed);
  CHECK(narrow.optimizer.rounds_masters_by_chance);
  CHECK(test::contains(test::error_of([&] {
                         options_of(
                             "train: {dtype: f16, master_dtype: f16}\n"
                             "fsdp: {units: [{match: root, param_dtype: bf16}]}\n");
                       }),
                       "train.master_dtype: f16: expected all units to compute in f16"));
  const auto said = remarks(config_of("train: {master_dtype: bf16}"), {}, 1, std::nullopt);
  REQUIRE(said.size() == 1);
  CHECK(said[0].starts_with("train.master_dtype is bf16, rounded to nearest"));
}

TEST_CASE("train setup: masters and moments of 16 bits, what goes together") {
  const optim::OptimizerOptions options =
      config_of(
          "train: {dtype: bf16, seed: 5, master_dtype: bf16, stochastic_rounding: true, "
          "optimizer: {state_dtype: bf16}}")
          .optimizer();
  CHECK(options.state_dtype == DType::kBF16);
  CHECK(options.rounds_masters_by_chance);
  CHECK(options.rounding_seed == 5);
  CHECK(!config_of("train: {dtype: bf16, stochastic_rounding: true}")
             .optimizer()
             .rounds_masters_by_chance);
  config_of("train: {dtype: f16, master_dtype: f16}");
  config_of("train: {master_dtype: bf16}");
  const std::pair<const char*, const char*> refused[] = {
      {"dtype: bf16, master_dtype: f16",
       "train.master_dtype: f16: values beyond 65504 would be infinite; expected train.dtype: f16 "
       "with it, got bf16"},
      {"dtype: f64, master_dtype: f32",
       "train.master_dtype: expected f64 with train.dtype: f64, got f32"},
      {"master_dtype: f64",
       "train.master_dtype: expected f32, bf16 or f16 with train.dtype: f32, got f64"},
      {"optimizer: {state_dtype: f16}",
       "train.optimizer.state_dtype: expected f32 or bf16 with train.dtype: f32, got f16"},
      {"dtype: f64, optimizer: {state_dtype: bf16}",
       "train.optimizer.state_dtype: expected f64 with train.dtype: f64, got bf16"},
      {"dtype: f16, master_dtype: f16, stochastic_rounding: true",
       "train.stochastic_rounding: rounds to bf16, but master weights are in f16"},
      {"optimizer: {kind: sgd, state_dtype: bf16}",
       "train.optimizer.state_dtype: bf16 has no effect with kind: sgd, without momentum"}};
  for (const auto& [train, why] : refused) {
    CHECK(test::error_of([&, text = std::string(train)] { config_of("train: {" + text + "}"); }) ==
          fmt::format("test.yaml:1: {}", why));
  }
}

TEST_CASE("train setup: what is found out late names its key and place too") {
  const auto wrap_error = [](const config::TrainConfig& config) {
    cpu::CpuBackend backend;
    models::ModelConfig small = models::preset("gpt2-124m");
    small.layers = 1;
    models::CausalLM model(small, backend, DType::kF32, 1);
    const comm::WrapPolicy policy = session_options(config, small, 1, {}).wrap;
    return test::error_of([&] { policy(model); });
  };
  CHECK(wrap_error(config_of("fsdp:\n  wrap: class\n  wrap_classes: [GPTBlock]\n"))
            .starts_with("test.yaml:3: fsdp.wrap_classes: no module of class 'GPTBlock'; this "
                         "model has GPT2Block, "));
  CHECK(wrap_error(
            config::parse_config("fsdp: {wrap: class}", "test.yaml", {"fsdp.wrap_classes=[Foo]"}))
            .starts_with("--set fsdp.wrap_classes=[Foo]: fsdp.wrap_classes: no module of class"));
  const auto config = config_of("fsdp:\n  strategy: hybrid_shard\n  shard_size: 3\n");
  CHECK(test::error_of([&] { session_options(config, {}, 4, {}); }) ==
        "test.yaml:3: fsdp.shard_size: expected a divisor of 4 ranks, got 3");
}

TEST_CASE("train setup: units that differ") {
  const auto options = session_options(
      config_of("fsdp:\n  units:\n  - {match: root, reshard_after_forward: false}\n"
                "  - match: blocks.1\n    strategy: zero2\n    reshard_group_size: 2\n"
                "    param_dtype: f16\n    reduce_dtype: bf16\n"),
      {}, 2, {});
  const std::vector<comm::UnitOverride> expected = {
      {.match = "root", .reshard_after_forward = false, .place = "test.yaml:3"},
      {.match = "blocks.1",
       .strategy = comm::Strategy::kShardGradOp,
       .reshard_group_size = 2,
       .param_dtype = DType::kF16,
       .reduce_dtype = DType::kBF16,
       .place = "test.yaml:4"}};
  CHECK(options.fsdp.units == expected);
  CHECK(options.loss_scale.initial == 65536);  // one unit in f16 is enough
}

TEST_CASE("train setup: LoRA from the section, or from an adapter's folder") {
  CHECK(!lora_config(config_of("")));
  const auto lora = lora_config(
      config_of("lora: {r: 4, alpha: 6, dropout: 0.1, targets: all-linear}\nmodel: {path: /a/b}"));
  REQUIRE(lora);
  CHECK(lora->r == 4);
  CHECK(lora->alpha == 6);
  CHECK(lora->dropout == 0.1);
  CHECK(lora->targets == std::vector<std::string>{"all-linear"});
  CHECK(lora->base == "/a/b");
  const std::string adapter = test::fixture_path("models/lora_gpt2").string();
  config::TrainConfig config =
      config_of("lora: {path: " + adapter + ", dropout: 0.2}\ndata: {sequence_length: 32}");
  resolve_paths(config, "");
  CHECK(config.model.path == adapter + "/base");
  const auto loaded = session_options(config, model_config(config, 73), 1, {}).lora;
  REQUIRE(loaded);
  CHECK(loaded->r == 4);
  CHECK(loaded->dropout == 0.2);
  CHECK(loaded->targets == std::vector<std::string>{"c_attn"});
  CHECK(loaded->base == adapter + "/base");
  CHECK(test::contains(error_of("model: {path: " + adapter + "}"),
                       "a LoRA adapter, no model; give it as lora.path"));
}

TEST_CASE("train setup: groups that the ranks do not divide into, by key") {
  const auto refusal = [](const std::string& fsdp, int ranks) {
    const config::TrainConfig config = config_of("train: {micro_steps: 2}\nfsdp: {" + fsdp + "}");
    return test::error_of([&] { session_options(config, {}, ranks, {}); });
  };
  const std::string hybrid = "strategy: hybrid_shard, shard_size: ";
  CHECK(refusal(hybrid + "3", 4) ==
        "test.yaml:2: fsdp.shard_size: expected a divisor of 4 ranks, got 3");
  CHECK(refusal(hybrid + "8", 4).starts_with("test.yaml:2: fsdp.shard_size: "));
  CHECK(refusal(hybrid + "2", 4) == "");
  CHECK(refusal("reshard_group_size: 3", 4) ==
        "test.yaml:2: fsdp.reshard_group_size: expected a divisor of the ranks of a shard group, "
        "4, got 3");
  CHECK(refusal("reshard_group_size: 3", 2) != "");
  CHECK(refusal("reshard_group_size: 2", 2) == "");  // see remarks()
  CHECK(refusal("reshard_group_size: 2", 1) == "");
}

TEST_CASE(
    "train setup: fixed_order and passes reach the session, and what it cannot have is refused") {
  const auto options = [](const std::string& train, const std::string& fsdp, int ranks = 4) {
    const config::TrainConfig config =
        config_of("train: {" + train + "}\nfsdp: {fixed_order: true" + fsdp + "}");
    return session_options(config, {}, ranks, {});
  };
  const std::string passes = "batch: 64, rows_per_pass: 1";
  CHECK(options(passes, "").fsdp.fixed_order);
  CHECK(options(passes, "").backend.cpu.fixed_tiles);
  CHECK(options(passes, "").fsdp.micro_steps == 16);
  CHECK(options(passes, "", 6).fsdp.micro_steps == 11);
  const auto scale = options(passes + ", dtype: f16, loss_scale: {rule: fairseq}", "", 3);
  CHECK(scale.loss_scale.rule.interval == 16384 / 64);
  const auto refusal = [&](const std::string& fsdp) {
    return test::error_of([&] { options(passes, ", " + fsdp); });
  };
  for (const char* key : {"accumulation: reduce_last", "accumulation: reduce_scatter_each",
                          "divide_factor: 2", "force_sum: true", "split_division: true"}) {
    CAPTURE(key);
    const std::string hybrid = ", strategy: hybrid_shard, shard_size: 2";
    CHECK(refusal(key + hybrid).starts_with("test.yaml:2: fsdp.fixed_order: "));
  }
}

TEST_CASE("train setup: the loss scale of f16, by rule and by value") {
  const auto scale = [](const std::string& yaml) {
    return session_options(config_of("train: {" + yaml + "}"), {}, 4, {}).loss_scale;
  };
  CHECK(scale("dtype: bf16").initial == 0);
  CHECK(scale("dtype: f16").initial == 65536);
  CHECK(scale("dtype: f16").rule.interval == 2000);
  const auto fairseq = scale("dtype: f16, micro_steps: 3, loss_scale: {rule: fairseq, growth: 4}");
  CHECK(fairseq.initial == 128);
  CHECK(fairseq.rule.interval == 16384 / 12);
  CHECK(fairseq.rule.growth == 4);
  CHECK(scale("dtype: f32, loss_scale: {rule: torch, initial: 8}").initial == 8);
  CHECK(test::contains(test::error_of([&] { scale("dtype: f16, loss_scale: {rule: none}"); }),
                       "f16 needs loss scaling"));
  const auto refusal = [&](const std::string& yaml) {
    return test::error_of([&] { scale("dtype: f16, loss_scale: {" + yaml + "}"); });
  };
  CHECK(refusal("rule: fairseq, minimum: 128") ==
        "train.loss_scale.minimum: expected less than the initial scale 128, got 128");
  CHECK(refusal("initial: 8, floor: 9") ==
        "train.loss_scale.floor: expected at most the initial scale 8, got 9");
  CHECK(refusal("initial: 8, floor: 8, minimum: 7") == "");
}

TEST_CASE("train setup: a schedule that the run does not show is said") {
  const auto said = [](const std::string& schedule) {
    std::string out;
    const auto config = config_of("train: {steps: 100, lr: 1e-3, schedule: {" + schedule + "}}");
    for (const std::string& line : remarks(config, {}, 1, std::nullopt)) out += line + "\n";
    return out;
  };
  CHECK(said("warmup: 99, kind: linear") == "");
  CHECK(said("warmup: 100, kind: linear") ==
        "train.schedule.warmup is 100, the run has 100 steps: the rate never reaches train.lr\n");
  CHECK(said("kind: polynomial, min_lr: 1e-3") == "");
  CHECK(said("kind: polynomial, min_lr: 2e-3") ==
        "train.schedule.min_lr is 0.002, above train.lr 0.001: the rate rises\n");
  CHECK(said("kind: linear, total: 100") == "");
  CHECK(
      said("kind: linear, total: 50") ==
      "train.schedule.total is 50, the run has 100 steps: updates 51 to 100 have rate 0 and train "
      "nothing\n");
  CHECK(said("kind: linear, total: 99") ==
        "train.schedule.total is 99, the run has 100 steps: update 100 has rate 0 and trains "
        "nothing\n");
  CHECK(
      said("kind: polynomial, min_lr: 1e-4, total: 50") ==
      "train.schedule.total is 50, the run has 100 steps: updates 51 to 100 have rate 1.00e-04\n");
  CHECK(said("kind: linear, total: 200") ==
        "train.schedule.total is 200, the run has 100 steps: the last update has rate "
        "5.05e-04, the schedule ends at 0.00e+00\n");
  // A cosine rises again; Hugging Face's too.
  CHECK(said("kind: cosine, total: 50") ==
        "train.schedule.total is 50, the run has 100 steps: updates 51 to 100 have rates from "
        "0.00e+00 to 9.99e-04\n");
  CHECK(said("kind: warmup_stable_decay, warmup: 40, decay_steps: 60") == "");
  CHECK(said("kind: warmup_stable_decay, warmup: 40, decay_steps: 61") ==
        "train.schedule.decay_steps is 61, but 60 follow the warm-up: the decay ends after "
        "the schedule\n");
}

TEST_CASE("train setup: what ranks and data make of options") {
  const auto remarks_of = [](const std::string& yaml, int64_t sequences, int ranks) {
    std::string out;
    for (const std::string& line : remarks(config_of(yaml), {}, ranks, sequences)) {
      out += line + "\n";
    }
    return out;
  };
  CHECK(remarks_of("", 8, 2) == "");
  CHECK(remarks_of("train: {batch: 9}", 8, 2) ==
        "train.batch is 9, the data has 8 sequences: every step is an epoch and takes them all\n");
  CHECK(remarks_of("train: {micro_steps: 4}", 8, 2) == "");
  CHECK(remarks_of("train: {micro_steps: 4}", 8, 3) ==
        "train.micro_steps is 4, a rank has at most 3 sequences in a step: the other micro-steps "
        "are empty\n");
  CHECK(test::contains(remarks_of("fsdp: {strategy: full_shard}", 8, 1),
                       "full_shard on one rank: no memory saving possible: "));
  CHECK(remarks_of("fsdp: {strategy: no_shard}", 8, 1) == "");
  CHECK(remarks_of("fsdp: {strategy: full_shard}", 8, 2) == "");
  CHECK(remarks_of("fsdp: {reshard_group_size: 2}", 8, 4) == "");
  CHECK(test::contains(remarks_of("fsdp: {reshard_group_size: 2}", 8, 2), "no effect"));
  CHECK(remarks(config_of("train: {batch: 9}"), {}, 2).empty());  // of unknown data
  const std::string later = "train: {micro_steps: 2}\nfsdp: {accumulation: reduce_scatter_each";
  CHECK(test::contains(remarks_of(later + ", strategy: hybrid_shard, shard_size: 4}", 8, 4),
                       "is reduce_each"));
  CHECK(remarks_of(later + ", strategy: hybrid_shard, shard_size: 2}", 8, 4) == "");
  CHECK(remarks_of(later + ", strategy: no_shard}", 8, 4) == "");
}

TEST_CASE("train setup: buffer_dtype where a model has position tables, and where it has none") {
  const config::TrainConfig half = config_of("train: {buffer_dtype: bf16}");
  const config::TrainConfig full = config_of("train: {buffer_dtype: f32}");
  for (const char* family : {"llama", "bloom"}) {
    const models::ModelConfig model = models::family_defaults(family);
    CHECK(session_options(half, model, 1, {}).model.buffer_dtype == DType::kBF16);
    REQUIRE(remarks(half, model, 1).size() == 1);
    CHECK(test::contains(remarks(half, model, 1)[0], "lose digits"));
    CHECK(remarks(full, model, 1).empty());
  }
  CHECK(test::contains(remarks(half, models::family_defaults("llama"), 1)[0], "rotary"));
  CHECK(test::contains(remarks(half, models::family_defaults("bloom"), 1)[0], "ALiBi"));
  const models::ModelConfig learned = models::family_defaults("gpt2");
  for (const config::TrainConfig& config : {half, full}) {
    CHECK(test::contains(test::error_of([&] { session_options(config, learned, 1, {}); }),
                         "has no effect on gpt2: it has neither rotary positions nor ALiBi"));
  }
}

TEST_CASE("train setup: attention's order reaches the GPU, of 16 bits alone, with a remark") {
  const auto options = [](const std::string& train) {
    return session_options(config_of("train: {" + train + "}"), {}, 1,
                           {.cuda = cuda::CudaOptions{}});
  };
  CHECK(options("dtype: bf16").backend.cuda->attention_deterministic);
  for (const char* dtype : {"bf16", "f16"}) {
    const std::string train = fmt::format("attention_deterministic: false, dtype: {}", dtype);
    CHECK(!options(train).backend.cuda->attention_deterministic);
    const auto said = remarks(config_of("train: {" + train + "}"), {}, 1);
    REQUIRE(said.size() == 1);
    CHECK(test::contains(said[0], "a resume and a replay differ in the last bits"));
  }
  CHECK(test::error_of([&] { options("attention_deterministic: false, dtype: f32"); }) ==
        "test.yaml:1: train.attention_deterministic: false is for attention in bf16 or f16, but "
        "the computation is in f32");
}

TEST_CASE("train setup: the head's logits") {
  const auto head = [](const std::string& text) {
    return session_options(config_of("train: {" + text + "}"), {}, 1, {}).head;
  };
  CHECK(!head("dtype: bf16").logits_dtype);
  CHECK(head("").chunk_bytes == ops::HeadOptions().chunk_bytes);
  CHECK(head("logits_chunk_bytes: 512MiB").chunk_bytes == int64_t{512} << 20);
  CHECK(head("dtype: bf16, logits_dtype: bf16").logits_dtype == DType::kBF16);
  CHECK(head("dtype: f16, logits_dtype: f32").logits_dtype == DType::kF32);
  const auto refused = [&](const std::string& text) { return test::error_of([&] { head(text); }); };
  CHECK(refused("logits_dtype: bf16") ==
        "test.yaml:1: train.logits_dtype: expected f32, because the computation is in f32, got "
        "bf16");
  CHECK(test::contains(refused("dtype: f16, logits_dtype: bf16"), "the computation is in f16"));
  CHECK(test::contains(refused("dtype: f64, logits_dtype: f32"), "expected f64, because"));
  CHECK(test::contains(refused("dtype: bf16, logits_dtype: f16"), "expected f32 or bf16"));
  CHECK(test::contains(refused("logits_chunk_bytes: auto"),
                       "train.logits_chunk_bytes: expected a size"));
}

TEST_CASE("train setup: ranks with different configurations are told where they differ") {
  const auto message_of = [](const std::string& key, const std::string& value) {
    std::vector<std::string> messages(3);
    comm::run_local_ranks(3, [&](comm::Communicator& world) {
      std::vector<config::Override> overrides = {"sample.tokens=1", "sample.prompt=two\nlines"};
      if (world.rank() == 2) overrides.push_back(key + "=" + value);
      const auto config = config::parse_config("", "", overrides);
      messages[static_cast<size_t>(world.rank())] =
          test::error_of([&] { check_same_config(world, config); });
    });
    CHECK(messages[0] == messages[1]);
    CHECK(messages[0] == messages[2]);
    return messages[0];
  };
  CHECK(message_of("train.lr", "0.25") ==
        "ranks have different configurations: train.lr: 0.0003 on rank 0, 0.25 on rank 2");
  CHECK(message_of("data.train", "b.txt") ==
        "ranks have different configurations: data.train: [] on rank 0, [\"b.txt\"] on rank 2");
  for (const char* own : {"runtime.run_dir", "runtime.name", "data.cache_dir"}) {
    CHECK(message_of(own, "x") == "");
  }
  CHECK(message_of("runtime.threads", "3") == "");
}

TEST_CASE("train setup: ranks compare every listed option, but for their own") {
  std::vector<std::string> own;
  for (const test::ListedOption& option : test::ListedOptions::all()) {
    CAPTURE(option.key);
    std::vector<std::string> messages(2);
    comm::run_local_ranks(2, [&](comm::Communicator& world) {
      const auto config = world.rank() == 0 ? config::TrainConfig() : option.changed;
      messages[static_cast<size_t>(world.rank())] =
          test::error_of([&] { check_same_config(world, config); });
    });
    CHECK(messages[0] == messages[1]);
    if (option.field.of_rank) own.push_back(option.key);
    const std::string expected =
        fmt::format("ranks have different configurations: {}: ", option.key);
    CHECK(messages[0].starts_with(option.field.of_rank ? "" : expected));
    CHECK(messages[0].empty() == option.field.of_rank);
  }
  CHECK(own == config::keys_of_each_rank());
}

}  // namespace
}  // namespace fsdp::tools
