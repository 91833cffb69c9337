// The model of a configuration: sizes, folders, what cannot be said.
#include "tools/train/model_shape.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/temp_folder.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

config::TrainConfig config_of(const std::string& yaml) {
  return config::parse_config(yaml, "test.yaml", {});
}

std::string error_of(const std::string& yaml) {
  return test::error_of([&] { model_config(config_of(yaml), 257); });
}

TEST_CASE("model shape: a model from sizes") {
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

TEST_CASE("model shape: a preset with other sizes") {
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

TEST_CASE("model shape: what does not make a model") {
  CHECK(test::contains(error_of("model: {hidden_size: 64}"), "one of path, preset, or model_type"));
  CHECK(test::contains(error_of("model: {model_type: llama, hidden_size: 64, heads: 5, layers: 1}"),
                       "model.heads: expected a divisor of hidden_size 64, got 5"));
  CHECK(
      test::contains(error_of("model: {model_type: llama, hidden_size: 64, heads: 4}"), "layers"));
  CHECK(test::contains(error_of("model: {preset: gpt2-124m, model_type: llama}"), "family gpt2"));
  CHECK(test::contains(error_of("model: {preset: gpt2-124m}\ndata: {sequence_length: 2048}"),
                       "the model has 1024 positions, got 2048"));
  CHECK(test::contains(error_of("model: {preset: gpt2-124m}\n"
                                "data: {sequence_length: 2500, pack: documents}"),
                       "the model has 1024 positions, got 2500; with data.pack: documents, a step "
                       "of the same documents is data.sequence_length: 1024 and 3 times "
                       "train.batch"));
  CHECK(test::contains(error_of("model: {path: /nowhere}"), "/nowhere: no such folder"));
  CHECK(test::contains(error_of("model: {preset: gpt2-124m, activation: swish2}"),
                       "model.activation: expected one of gelu"));
}

TEST_CASE("model shape: a model from a folder, with nothing that contradicts it") {
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
  CHECK(test::contains(error_of(path + ", shift_labels: false}"), "has true, got false"));
  CHECK(test::contains(error_of(path + ", activation: gelu}"), "model.activation"));
  CHECK(test::contains(error_of(path + ", init_deviation: 0.5}"), "has 0.02, got 0.5"));
}

TEST_CASE("model shape: what the family's config.json cannot say is refused") {
  const auto sized = [](const std::string& more) {
    return error_of("model: {hidden_size: 64, layers: 1, heads: 4, " + more + "}");
  };
  CHECK(sized("model_type: gpt2, kv_heads: 2") ==
        "test.yaml:1: model.kv_heads: the config.json of the family gpt2 cannot say 2; it would be "
        "read back "
        "as 4");
  CHECK(sized("model_type: gpt2, head_dim: 32").starts_with("test.yaml:1: model.head_dim: "));
  CHECK(sized("model_type: gpt2, rope_theta: 10000") ==
        "test.yaml:1: model.rope_theta: the family gpt2 has no rotary positions");
  CHECK(sized("model_type: gpt2, shift_labels: false")
            .starts_with("test.yaml:1: model.shift_labels: "));
  CHECK(sized("model_type: workshop_gpt, tie_embeddings: false, shift_labels: false") == "");
  CHECK(sized("model_type: llama, activation: gelu_new") == "");
  CHECK(sized("model_type: bloom, ffn: 100").starts_with("test.yaml:1: model.ffn: "));
  CHECK(sized("model_type: gpt_neox, head_dim: 32").starts_with("test.yaml:1: model.head_dim: "));
  CHECK(sized("model_type: bloom, dropout: 0.1") == "");
  CHECK(sized("model_type: llama, kv_heads: 2, head_dim: 32, rope_theta: 5, dropout: 0.1") == "");
  for (const std::string& name : models::preset_names()) {
    CAPTURE(name);
    CHECK(error_of("model: {preset: " + name + ", dropout: 0.1}") == "");
  }
}

TEST_CASE("model shape: how much is trained") {
  Parameter a("a", Shape{3, 1000}, {}, true), b("b", Shape{1000}, {}, false);
  CHECK(describe_trained({&a, &b}) == "");
  a.set_trainable(false);
  CHECK(describe_trained({&a, &b}) == "1,000 of 4,000 parameters are trained (25.0000 %)");
}

TEST_CASE("model shape: a name with a slash is a folder, every other one a preset or an error") {
  const test::TempFolder folder;
  CHECK(model_override(folder.path().string()) == "model.path=" + folder.path().string());
  CHECK(model_override("bigscience/bloom-560m") == "model.path=bigscience/bloom-560m");
  CHECK(model_override("gpt2-124m") == "model.preset=gpt2-124m");
  CHECK(test::error_of([] { model_override("gpt2-12m"); }) ==
        "--model gpt2-12m: neither a folder nor a preset; the nearest preset is gpt2-124m");
  CHECK(model_override("gpt2") == "model.preset=gpt2");  // for its sizes
  CHECK(test::contains(test::error_of([] { model_override("gpt2", HubNames::kRefused); }),
                       "the nearest preset is gpt2-124m (gpt2 on the hub)"));
  for (const char* key : {"path", "preset"}) {  // neither is random weights in silence
    const std::string error = error_of(fmt::format("model: {{{}: bigscience/bloom-560m}}", key));
    CHECK(test::contains(error, fmt::format("model.{}: ", key)));
    CHECK(test::contains(error, "\n  hf download bigscience/bloom-560m "));
  }
}

TEST_CASE("model shape: published sizes of a model that is not there") {
  const auto sizes = [](const std::string& yaml, std::vector<std::string> notes) {
    config::TrainConfig config = config::parse_config(yaml, "c.yaml", {});
    CHECK(take_published_sizes(config) == notes);
    return model_config(config, vocabulary_of(config)).parameter_count();
  };
  const std::string text = "\ndata: {train: [rows.jsonl]}";
  const std::string hub = ": a name of Hugging Face's hub: the sizes are those of the preset ";
  const std::vector<std::string> bloom = {"model.path: bigscience/bloom-560m" + hub + "bloom-560m"};
  CHECK(sizes("model: {path: bigscience/bloom-560m}" + text, bloom) == 559214592);
  CHECK(sizes("model: {path: bigscience/bloom-560m}\ndata: {tokenizer: bigscience/bloom-560m}",
              bloom) == 559214592);
  CHECK(sizes("model: {path: bigscience/bloom-560m}\ndata: {tokenizer: bytes}", bloom) ==
        559214592);
  CHECK(sizes("model: {preset: codellama/CodeLlama-7b-hf}",
              {"model.preset: codellama/CodeLlama-7b-hf" + hub + "codellama-7b"}) == 6738546688);
  CHECK(sizes("model: {preset: codellama-7b}" + text,
              {"model.vocab_size: 32016, as the preset codellama-7b was published; a run of this "
               "configuration has 257, the tokens of bytes (data.tokenizer)"}) == 6738546688);
  CHECK(sizes("model: {preset: bloom-560m}", {}) == 559214592);
  // What is said counts.
  CHECK(sizes("model: {preset: gpt2-124m, vocab_size: 257}" + text, {}) == 86039808);
  CHECK(sizes("model: {preset: gpt2-124m}\ndata: {tokenizer: bytes}", {}) == 86039808);
  config::TrainConfig unknown = config::parse_config("model: {path: org/name}", "", {});
  CHECK(take_published_sizes(unknown).empty());
  CHECK(unknown.model.path == "org/name");
}

}  // namespace
}  // namespace fsdp::tools
