// What inspect says of presets, config files and folders.
#include "tools/inspect/inspection.h"

#include <filesystem>
#include <map>

#include <doctest/doctest.h>
#include <sys/stat.h>

#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/safetensors.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;
using test::contains;

TEST_CASE("inspect: Pythia's published numbers of parameters, in all and without embeddings") {
  struct Row {
    const char* name;
    int64_t total, without_embeddings;
  };
  // github.com/EleutherAI/pythia, "Models"
  for (const Row& row :
       {Row{"pythia-70m", 70426624, 18915328}, Row{"pythia-160m", 162322944, 85056000},
        Row{"pythia-410m", 405334016, 302311424}, Row{"pythia-1b", 1011781632, 805736448},
        Row{"pythia-1.4b", 1414647808, 1208602624}, Row{"pythia-2.8b", 2775208960, 2517652480},
        Row{"pythia-6.9b", 6857302016, 6444163072}, Row{"pythia-12b", 11846072320, 11327027200}}) {
    CAPTURE(row.name);
    const Inspection found = inspect({.source = row.name});
    CHECK(found.counts.total == row.total);
    CHECK(found.counts.trainable == row.total);
    CHECK(found.counts.other() == row.without_embeddings);
    CHECK(found.counts.embedding == found.counts.head);
    CHECK(found.sound());
  }
}

TEST_CASE("inspect: rows and units add up to the whole model, for every preset") {
  for (const std::string& name : models::preset_names()) {
    CAPTURE(name);
    const Inspection found = inspect({.source = name, .world = 3});
    int64_t rows = 0, units = 0, tensors = 0;
    int64_t in_blocks = 0;
    for (const ModuleRow& module : found.modules()) {
      int64_t inside = 0;
      for (const ParameterRow& row : found.parameters) {
        if (!row.name.starts_with(module.name + ".")) continue;
        inside += row.times * row.shape.numel();
      }
      CHECK(module.parameters == inside);
      CHECK(module.tensors > 1);
      if (module.name.ends_with(".*")) in_blocks = module.parameters;
    }
    CHECK(in_blocks > 0);
    for (const ParameterRow& row : found.parameters) {
      rows += row.times * row.shape.numel();
      tensors += row.times;
      CHECK((row.times == 1 || row.times == found.config.layers));
    }
    for (const UnitRow& unit : found.units) {
      units += unit.parameters;
      tensors -= static_cast<int64_t>(unit.shapes.size());
    }
    CHECK(rows == found.config.parameter_count());
    CHECK(units == rows);
    CHECK(tensors == 0);
    CHECK(found.units.size() == static_cast<size_t>(found.config.layers) + 1);
    CHECK((found.counts.head == 0) == found.config.tied_head);
    static const std::map<std::string, std::string> kPositions = {
        {"gpt2", "learned"},         {"transformer_lm_gpt3", "learned"},
        {"bloom", "ALiBi"},          {"workshop_gpt", "not encoded"},
        {"llama", "rotary, theta "}, {"mistral", "rotary, theta "},
        {"qwen2", "rotary, theta "}, {"gpt_neox", "rotary, theta 10000, 0.25 of each head"}};
    CHECK(contains(format_inspection(found), "positions, " + kPositions.at(found.config.family)));
  }
}

TEST_CASE("inspect: a folder, its weights and its tokenizer") {
  const test::TempFolder scratch;
  const fs::path folder = scratch / "model";
  fs::create_directory(folder);
  for (const char* name : {"config.json", "model.safetensors"}) {
    fs::copy(test::fixture_path("models") / "llama_gqa_llama3" / name, folder / name);
  }
  const auto tokenizer = test::fixture_path("tokenizers") / "llama2_legacy" / "tokenizer.json";
  fs::copy(tokenizer, folder / "tokenizer.json");
  const Inspection found = inspect({.source = folder.string(), .world = 2});
  const Json reference =
      read_json_file(test::fixture_path("models") / "llama_gqa_llama3" / "reference.json");
  CHECK(found.counts.total == reference["parameters"].get<int64_t>());
  CHECK(found.dtype == "float32");
  REQUIRE(found.weights);
  CHECK(found.weights->problem == "");
  CHECK(found.weights->files.at("model.safetensors") ==
        fs::file_size(folder / "model.safetensors"));
  CHECK(found.weights->dtypes.at("F32").elements == found.counts.total);
  REQUIRE(found.tokenizer);
  CHECK(found.tokenizer->components.at("model") == "BPE");
  CHECK(found.tokenizer->components.at("normalizer") == "Sequence");
  CHECK(found.tokenizer->specials.at("</s>") == 2);
  CHECK(found.sound());
  const std::string text = format_inspection(found);
  CHECK(contains(text, "model.layers.*.self_attn.k_proj.weight"));
  CHECK(contains(text, "rotary, theta 10000, llama3 scaling by 8"));
  CHECK(contains(text, "blocks.0 .. blocks.1"));
  CHECK(contains(text, "names and shapes are those of the model"));
  CHECK(contains(text, "<unk> = 0"));
  const Json json = parse_json(inspection_json(found), "json");
  CHECK(json["total"] == found.counts.total);
  CHECK(json["units"].size() == 3);
  CHECK(json["weights"]["dtypes"]["F32"]["elements"] == found.counts.total);
  CHECK(json["tokenizer"]["special_tokens"]["</s>"] == 2);
  CHECK(json["tokenizer"]["note"] == "");
  write_file_atomically(folder / "tokenizer_config.json", R"({"tokenizer_class": "Own"})");
  CHECK(contains(format_inspection(inspect({.source = folder.string()})),
                 "  note: " + (folder / "tokenizer.json").string() +
                     ": tokenizer_config.json names the tokenizer_class \"Own\""));

  const Inspection by_config = inspect({.source = (folder / "config.json").string()});
  CHECK(by_config.counts.total == found.counts.total);
  CHECK(!by_config.weights);
}

TEST_CASE("inspect: modules with more than one tensor, and their sums") {
  const Inspection found = inspect({.source = "llama3.2-1b"});
  std::vector<std::string> names;
  for (const ModuleRow& row : found.modules()) names.push_back(row.name);
  CHECK(names == std::vector<std::string>{"model", "model.layers.*", "model.layers.*.self_attn",
                                          "model.layers.*.mlp"});
  const ModuleRow mlp = found.modules().back();
  CHECK(mlp.parameters == int64_t{3} * 2048 * 8192 * 16);
  CHECK(mlp.tensors == 3 * 16);
  CHECK(contains(format_inspection(found),
                 fmt::format("  {:<52} {:>24} {:>17}\n", "model.layers.*.mlp", 48, "805,306,368")));
  CHECK(parse_json(inspection_json(found), "json")["modules"][3]["parameters"] == 805306368);
}

TEST_CASE("inspect: a LoRA adapter's folder, with its base's") {
  const fs::path lora = test::fixture_path("models") / "lora_gpt2";
  const Inspection found = inspect({.source = lora.string()});
  REQUIRE(found.adapter);
  CHECK(found.sound());
  CHECK(found.source == (lora / "base").string());
  int64_t parameters = 0;
  const auto file = SafetensorsFile::open(lora / "adapter_model.safetensors");
  for (const auto& [name, entry] : file.entries()) parameters += entry.numel;
  CHECK(found.adapter->parameters == parameters);
  CHECK(2 * found.adapter->layers == file.entries().size());
  CHECK(contains(format_inspection(found), "names and shapes are those of the layers"));
  CHECK(parse_json(inspection_json(found), "json")["adapter"]["targets"] == "c_attn");

  const test::TempFolder scratch;
  fs::copy(lora / "adapter_config.json", scratch / "adapter_config.json");
  const std::string alone = scratch.path().string();
  CHECK(contains(test::error_of([&] { inspect({.source = alone}); }),
                 "base_model_name_or_path: \"base\": no such folder"));
  const Inspection empty = inspect({.source = alone, .base = (lora / "base").string()});
  CHECK(contains(empty.adapter->problem, "no adapter_model.safetensors"));
  CHECK(!empty.sound());
  CHECK(contains(test::error_of([&] { inspect({.source = "gpt2-124m", .base = alone}); }),
                 "a base needs an adapter"));
}

TEST_CASE("inspect: what does not fit is in the result, and what is no model is an error") {
  const test::TempFolder scratch;
  const auto models = test::fixture_path("models");
  fs::copy(models / "gpt2/config.json", scratch / "config.json");
  Inspection found = inspect({.source = scratch.path().string()});
  CHECK(contains(found.weights->problem, "no model.safetensors"));
  CHECK(!found.sound());
  fs::copy(models / "llama_linear_tied/model.safetensors", scratch / "model.safetensors");
  scratch.write("tokenizer.json", R"({"model":{"type":"Unigram"}})");
  found = inspect({.source = scratch.path().string()});
  CHECK(contains(found.weights->problem, "missing: transformer.wte.weight"));
  CHECK(contains(found.weights->problem, "unexpected: model.embed_tokens.weight"));
  CHECK(contains(found.weights->problem, "unexpected: 19 more"));
  CHECK(contains(found.tokenizer->problem, "Unigram"));
  CHECK(contains(format_inspection(found), "PROBLEM: "));
  CHECK(contains(test::error_of([] { inspect({.source = "other"}); }),
                 "preset: expected one of gpt2-124m, "));
  CHECK(test::error_of([] { inspect({.source = "/no/such"}); }) ==
        "/no/such: no such folder or file");
  CHECK(test::error_of([] { inspect({.source = "gpt2-mediun"}); }) ==
        "preset: unknown name \"gpt2-mediun\"; the nearest preset is gpt2-355m (gpt2-medium on the "
        "hub)");
  CHECK(contains(test::error_of([] { inspect({.source = "bigscience/bloom-560m"}); }),
                 "\n  hf download bigscience/bloom-560m "));
  const fs::path fifo = scratch / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(test::error_of([&] { inspect({.source = fifo.string()}); }) ==
        fifo.string() + ": expected a file, got a FIFO (named pipe)");
}

TEST_CASE("inspect: keys of config.json that nothing is computed from") {
  const test::TempFolder scratch;
  fs::copy(test::fixture_path("models/gpt2"), scratch.path(), fs::copy_options::recursive);
  Json json = read_json_file(scratch / "config.json");
  json["logit_scale"] = 2;
  scratch.write("config.json", json.dump());
  CHECK(contains(format_inspection(inspect({.source = scratch.path().string()})),
                 "note: " + (scratch / "config.json").string() +
                     ": logit_scale: unknown key: nothing is computed from it"));
}

TEST_CASE("inspect: frozen parameters are not trainable and form segments of their own") {
  const Inspection all = inspect({.source = "gpt2-124m", .world = 2});
  const Inspection some =
      inspect({.source = "gpt2-124m", .world = 2, .frozen = {"transformer.wpe.weight"}});
  CHECK(some.counts.trainable == all.counts.total - 1024 * 768);
  CHECK(all.counts.embedding == (50257 + 1024) * 768);
  CHECK(some.units[0].segments.size() == 2);
}

}  // namespace
}  // namespace fsdp::tools
