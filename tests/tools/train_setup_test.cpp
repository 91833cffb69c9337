// From configuration to model and session options.
#include "tools/runtime/train_setup.h"

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

TEST_CASE("train setup: options of the session") {
  const config::TrainConfig config = config_of(
      "model: {preset: gpt2-124m}\n"
      "train: {dtype: bf16, clip_norm: 0.5, optimizer: {beta2: 0.99, decay: all}}\n"
      "fsdp: {strategy: no_shard, wrap: none, backward_prefetch: post}\n");
  const SessionOptions options = session_options(config, model_config(config, 257), 3);
  CHECK(options.fsdp.strategy == comm::Strategy::kNoShard);
  CHECK(options.fsdp.param_dtype == DType::kBF16);
  CHECK(options.fsdp.reduce_dtype == DType::kF32);
  CHECK(options.fsdp.backward_prefetch == comm::BackwardPrefetch::kPost);
  CHECK(!options.wrap_blocks);
  CHECK(options.adamw.beta2 == 0.99);
  CHECK(options.decay == SessionOptions::Decay::kAll);
  CHECK(options.clip_norm == 0.5);
  CHECK(options.cpu.threads == 3);
  CHECK(test::contains(test::error_of([] {
                         const auto half = config_of("train: {dtype: f16}");
                         session_options(half, {}, 1);
                       }),
                       "loss scaling"));
}

}  // namespace
}  // namespace fsdp::tools
