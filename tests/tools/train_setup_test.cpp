// From configuration to model and session options.
#include "tools/runtime/train_setup.h"

#include <cmath>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

config::TrainConfig config_of(const std::string& yaml) {
  return config::parse_config(yaml, "test.yaml", {});
}

std::string error_of(const std::string& yaml) {
  return test::error_of([&] { model_config(config_of(yaml), 257); });
}

TEST_CASE("train setup: a model from sizes") {
  const models::ModelConfig model = model_config(
      config_of("model: {model_type: llama, hidden_size: 64, layers: 3, heads: 4, kv_heads: 2}\n"
                "data: {sequence_length: 32}\n"),
      257);
  CHECK(model.family == "llama");
  CHECK(model.vocabulary == 257);
  CHECK(model.head_dim == 16);
  CHECK(model.kv_heads == 2);
  CHECK(model.ffn == 192);  // 64 * 8 / 3 = 170, up to a multiple of 32
  CHECK(model.max_positions == 32);
  CHECK(!model.tied_head);
}

TEST_CASE("train setup: a preset with other sizes") {
  const models::ModelConfig model = model_config(
      config_of("model: {preset: gpt2-124m, hidden_size: 48, heads: 6, layers: 2, dropout: 0.25}"),
      300);
  CHECK(model.family == "gpt2");
  CHECK(model.vocabulary == 300);
  CHECK(model.hidden == 48);
  CHECK(model.head_dim == 8);
  CHECK(model.ffn == 192);
  CHECK(model.layers == 2);
  CHECK(model.max_positions == 1024);
  CHECK(model.residual_dropout == 0.25);
  CHECK(model.tied_head);
}

TEST_CASE("train setup: what does not make a model") {
  CHECK(test::contains(error_of("model: {hidden_size: 64}"), "one of path, preset, or model_type"));
  CHECK(test::contains(error_of("model: {model_type: llama, hidden_size: 64, heads: 5, layers: 1}"),
                       "model.heads: expected a divisor of hidden_size 64, got 5"));
  CHECK(
      test::contains(error_of("model: {model_type: llama, hidden_size: 64, heads: 4}"), "layers"));
  CHECK(test::contains(error_of("model: {preset: gpt2-124m, model_type: llama}"), "family gpt2"));
  CHECK(test::contains(error_of("model: {preset: gpt2-124m}\ndata: {sequence_length: 2048}"),
                       "the model has 1024 positions, got 2048"));
  CHECK(test::contains(error_of("model: {path: /nowhere}"), "/nowhere: no such folder"));
  CHECK(test::contains(error_of("model: {preset: gpt2-124m, activation: relu}"),
                       "model.activation: expected gelu_new"));
}

TEST_CASE("train setup: a model from a folder, with nothing that contradicts it") {
  const test::TempFolder folder;
  models::ModelConfig saved = models::preset("gpt2-124m");
  saved.layers = 2;
  folder.write("config.json", models::config_json(saved, "float32"));
  const std::string path = "model: {path: " + folder.path().string();
  CHECK(model_config(config_of(path + "}"), 257).vocabulary == 50257);
  CHECK(model_config(config_of(path + ", model_type: gpt2, layers: 2, heads: 12}"), 257).layers ==
        2);
  CHECK(test::contains(error_of(path + ", layers: 3}"), "has 2, got 3"));
  CHECK(test::contains(error_of(path + ", model_type: llama}"), "has gpt2, got llama"));
  CHECK(test::contains(error_of(path + ", tie_embeddings: false}"), "has true, got false"));
  CHECK(test::contains(error_of(path + ", activation: gelu}"), "model.activation"));
}

TEST_CASE("train setup: wrap policies") {
  cpu::CpuBackend backend;
  models::ModelConfig small = models::preset("gpt2-124m");
  small.layers = 2;
  models::CausalLM model(small, backend, DType::kF32, 1);
  const auto units = [&](const std::string& fsdp) {
    const config::TrainConfig config = config_of("fsdp: {" + fsdp + "}");
    const comm::WrapPolicy policy = session_options(config, small, 1, 1).wrap;
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

TEST_CASE("train setup: options of the session") {
  const config::TrainConfig config = config_of(
      "model: {preset: gpt2-124m}\n"
      "train: {dtype: bf16, clip_norm: 0.5, optimizer: {beta2: 0.99, decay: all}}\n"
      "fsdp: {strategy: no_shard, wrap: none, backward_prefetch: post}\n");
  const SessionOptions options = session_options(config, model_config(config, 257), 1, 3);
  CHECK(options.fsdp.strategy == comm::Strategy::kNoShard);
  CHECK(options.fsdp.param_dtype == DType::kBF16);
  CHECK(options.fsdp.reduce_dtype == DType::kF32);
  CHECK(options.fsdp.backward_prefetch == comm::BackwardPrefetch::kPost);
  REQUIRE(options.wrap);
  CHECK(options.adamw.beta2 == 0.99);
  CHECK(options.decay == SessionOptions::Decay::kAll);
  CHECK(options.clip_norm == 0.5);
  CHECK(options.cpu.threads == 3);
}

TEST_CASE("train setup: every way of sharding reaches the session") {
  const config::TrainConfig config = config_of(
      "model: {preset: gpt2-124m}\n"
      "train: {micro_steps: 3, loss_mean: ranks, clip_type: inf, freeze: ['*.wte.*'],\n"
      "        recompute: {mode: full, every: 2}}\n"
      "fsdp: {strategy: hybrid_shard, shard_size: 2, reshard_after_forward: false,\n"
      "       prefetch_depth: 2, units_in_flight: 3, separate_reduce: false,\n"
      "       accumulation: reduce_scatter_each, divide_factor: 3, force_sum: true,\n"
      "       absent_is_zero: true, fixed_order: true, reshard_group_size: 1}\n");
  const SessionOptions options = session_options(config, {}, 4, 1);
  CHECK(options.fsdp.strategy == comm::Strategy::kHybridShard);
  CHECK(options.fsdp.shard_size == 2);
  CHECK(options.fsdp.reshard_after_forward == false);
  CHECK(options.fsdp.reshard_group_size == 1);
  CHECK(options.fsdp.forward_prefetch == 2);
  CHECK(options.fsdp.units_in_flight == 3);
  CHECK(!options.fsdp.separate_reduce);
  CHECK(options.fsdp.accumulation == comm::Accumulation::kReduceScatterEach);
  CHECK(options.fsdp.divide_factor == 3.0);
  CHECK(options.fsdp.force_sum);
  CHECK(options.fsdp.absent_is_zero);
  CHECK(options.fsdp.fixed_order);
  CHECK(options.fsdp.micro_steps == 3);
  CHECK(options.loss_mean == SessionOptions::LossMean::kRanks);
  CHECK(std::isinf(options.clip_power));
  CHECK(options.recompute == RecomputeMode::kFull);
  CHECK(options.recompute_every == 2);
  CHECK(options.frozen == std::vector<std::string>{"*.wte.*"});
  CHECK(session_options(config_of("fsdp: {forward_prefetch: false}"), {}, 1, 1)
            .fsdp.forward_prefetch == 0);
}

TEST_CASE("train setup: the loss scale of f16, by rule and by value") {
  const auto scale = [](const std::string& yaml) {
    return session_options(config_of("train: {" + yaml + "}"), {}, 4, 1).loss_scale;
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
}

}  // namespace
}  // namespace fsdp::tools
