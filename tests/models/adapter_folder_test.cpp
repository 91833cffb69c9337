// PEFT's files: what is read, what is refused, and the sum of base and adapter.
// Requirements: S3.12.
#include "models/adapter_folder.h"

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "core/io/safetensors.h"
#include "core/shard_args.h"
#include "kernels/cpu/cpu_backend.h"
#include "models/causal_lm.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_models.h"

namespace fsdp::models {
namespace {

using test::contains;
using test::TempFolder;
using Doubles = std::vector<double>;

const std::filesystem::path kFixture = test::fixture_path("models/lora_gpt2");

// The fixture's configuration with one key changed.
std::string error_with(const char* key, const Json& value) {
  Json json = read_json_file(kFixture / kAdapterConfigFile);
  json[key] = value;
  const TempFolder folder;
  folder.write(kAdapterConfigFile, json.dump());
  return test::error_of([&] { read_adapter_config(folder.path()); });
}

TEST_CASE("adapter folder: the configuration that PEFT wrote") {
  CHECK(is_adapter_folder(kFixture));
  CHECK_FALSE(is_adapter_folder(kFixture / "base"));
  const LoraConfig lora = read_adapter_config(kFixture);
  CHECK(lora.r == 4);
  CHECK(lora.alpha == 8);
  CHECK(lora.dropout == 0);
  CHECK(lora.targets == std::vector<std::string>{"c_attn"});
  CHECK(lora.target_pattern == "");
  CHECK_FALSE(lora.rank_stabilised);
  CHECK(lora.base == "base");
  CHECK(adapter_base(kFixture) == (kFixture / "base").string());
}

TEST_CASE("adapter folder: what is written is read back, and has PEFT's keys and values") {
  const ModelConfig gpt2 = test::tiny_gpt2();
  const Json peft = read_json_file(kFixture / kAdapterConfigFile);
  const Json ours = parse_json(adapter_config_json(gpt2, read_adapter_config(kFixture)), "ours");
  for (const auto& [key, value] : ours.items()) {
    CAPTURE(key);
    REQUIRE(peft.contains(key));
    CHECK(value == peft.at(key));
  }
  for (const LoraConfig& lora :
       {LoraConfig{.r = 3, .alpha = 0.75, .dropout = 0.1, .targets = {"a", "b"}, .base = "x/y"},
        LoraConfig{.targets = {"all-linear"}, .rank_stabilised = true},
        LoraConfig{.target_pattern = ".*q_proj", .excluded_pattern = ".*[.]0[.].*"}, LoraConfig{},
        LoraConfig{.targets = {"a"},
        .excluded = {"b", "c.d"},
        .blocks = {0, 2},
        .block_names = {"layers", "h"},
        .ranks = {{"z", 3}, {"a", 4}},
        .alphas = {{"^y", 0.5}, {"b", 4}}}}) {
    const TempFolder folder;
    folder.write(kAdapterConfigFile, adapter_config_json(test::tiny_llama(), lora));
    const LoraConfig again = read_adapter_config(folder.path());
    CHECK(again.r == lora.r);
    CHECK(again.alpha == lora.alpha);
    CHECK(again.dropout == lora.dropout);
    CHECK(again.targets == lora.targets);
    CHECK(again.target_pattern == lora.target_pattern);
    CHECK(again.rank_stabilised == lora.rank_stabilised);
    CHECK(again.base == lora.base);
    CHECK(again.excluded == lora.excluded);
    CHECK(again.excluded_pattern == lora.excluded_pattern);
    CHECK(again.blocks == lora.blocks);
    CHECK(again.block_names == lora.block_names);
    CHECK(again.ranks == lora.ranks);
    CHECK(again.alphas == lora.alphas);
  }
}

TEST_CASE("adapter folder: what this program does not do is refused by its name") {
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, Json>>{{"use_dora", true},
                                                 {"bias", "all"},
                                                 {"bias", "lora_only"},
                                                 {"lora_bias", true},
                                                 {"peft_type", "IA3"},
                                                 {"task_type", "SEQ_CLS"},
                                                 {"task_type", "SEQ_2_SEQ_LM"},
                                                 {"modules_to_save", Json::array({"lm_head"})},
                                                 {"init_lora_weights", "pissa"},
                                                 {"trainable_token_indices", Json::array({1})},
                                                 {"something_new", 7}}) {
    const std::string error = error_with(key, value);
    CAPTURE(error);
    CHECK(contains(error, fmt::format("{}: {}: ", kAdapterConfigFile, key)));
    CHECK(contains(error, "is not supported by this build"));
  }
  CHECK(error_with("something_new", nullptr) == "");
  CHECK(error_with("task_type", nullptr) == "");
  CHECK(error_with("task_type", "CAUSAL_LM") == "");
  CHECK(contains(error_with("peft_type", nullptr), "peft_type: missing; expected \"LORA\""));
  for (const Json& none : {Json(""), Json::array()}) {
    CHECK(contains(error_with("target_modules", none),
                   "target_modules: expected names of layers, got none"));
  }
  CHECK(error_with("exclude_modules", "c_attn") == "");
  CHECK(error_with("layers_to_transform", 0) == "");
  CHECK(contains(error_with("layers_to_transform", "0"),
                 "layers_to_transform: expected numbers of layers of at most 32 bits, one or a "
                 "list, got \"0\""));
  CHECK(contains(error_with("layers_pattern", "h"),
                 "layers_pattern: expected layers_to_transform beside it"));
  CHECK(contains(error_with("rank_pattern", {{"c_attn", 0}}),
                 "rank_pattern: c_attn: expected at least 1, got 0"));
  CHECK(contains(error_with("alpha_pattern", {{"c_attn", "2"}}),
                 "alpha_pattern: c_attn: expected a number, got \"2\""));
  CHECK(contains(error_with("r", 0), "r: expected at least 1, got 0"));
  CHECK(contains(error_with("r", 2.5), "r: expected an integer of at most 32 bits, got 2.5"));
  CHECK(contains(error_with("lora_alpha", nullptr), "lora_alpha: missing"));
  CHECK(contains(error_with("target_modules", 7), "target_modules: expected a list or a string"));
}

TEST_CASE("adapter folder: how training began, where the base stayed as it is on the disk") {
  for (const Json& how : {Json(nullptr), Json(true), Json(false), Json("gaussian"),
                          Json("Gaussian"), Json("orthogonal"), Json("eva"), Json("mica")}) {
    CAPTURE(how);
    CHECK(error_with("init_lora_weights", how) == "");
  }
  // A converted adapter keeps the settings of its method.
  for (const char* key : {"eva_config", "corda_config", "loftq_config", "lora_ga_config"}) {
    CHECK(error_with(key, {{"bits", 4}}) == "");
  }
  for (const char* how : {"pissa", "olora", "OLoRA", "loftq"}) {
    CHECK(contains(error_with("init_lora_weights", how), "merge_and_unload()"));
  }
  for (const char* how : {"pissa_niter_16", "corda", "lora_ga"}) {
    CHECK(contains(error_with("init_lora_weights", how),
                   "path_initial_model_for_weight_conversion=...)"));
  }
  CHECK(error_with("init_lora_weights", "x")
            .ends_with("init_lora_weights: \"x\" is not supported by this build"));
  CHECK(
      contains(error_with("init_lora_weights", 7), "init_lora_weights: expected a string, got 7"));
}

TEST_CASE("adapter folder: the adapter of mlx-lm is told") {
  const TempFolder folder;
  folder.write(kAdapterConfigFile,
               R"({"fine_tune_type": "lora", "lora_parameters": {"rank": 8}, "model": "a b"})");
  CHECK(test::error_of([&] { read_adapter_config(folder.path()); }) ==
        fmt::format("{}: an adapter of mlx-lm (fine_tune_type and lora_parameters, no peft_type), "
                    "and not of PEFT; mlx_lm.fuse --model 'a b' --adapter-path {} --save-path NEW "
                    "makes a model of both",
                    (folder / kAdapterConfigFile).string(), folder.path().string()));
}

TEST_CASE("adapter folder: a base that is not there") {
  const TempFolder folder;
  folder.write(kAdapterConfigFile, adapter_config_json(test::tiny_gpt2(), {.base = "org/model"}));
  CHECK(
      contains(test::error_of([&] { adapter_base(folder.path()); }), "\n  hf download org/model"));
  CHECK(contains(
      test::error_of([&] { adapter_base(folder.path()); }),
      "base_model_name_or_path: \"org/model\": no such folder with a config.json: --base FOLDER "
      "says where"));
}

// ---------------------------------------------------------------------------- Tensors

struct Fixture {
  explicit Fixture(const ModelConfig& config) : model(config, backend, DType::kF64, 8) {}

  // An adapter of random values, without `left_out`, with `more`.
  void write(const LoraConfig& lora) {
    folder.write(kAdapterConfigFile, adapter_config_json(model.config(), lora));
    CausalLM adapted(model.config(), backend, DType::kF64, 8);
    add_lora(adapted, lora);
    std::vector<SafetensorsSpec> specs;
    for (const Parameter* p : adapted.parameters()) {
      if (!is_lora(*p) || p->name() == left_out) continue;
      specs.push_back({adapter_name(model.config(), *p), DType::kF64, p->shape().extents()});
    }
    specs.insert(specs.end(), more.begin(), more.end());
    SafetensorsWriter writer(folder / kAdapterWeightsFile, specs);
    for (const SafetensorsSpec& spec : specs) {
      const Doubles values = test::random_values(Shape(spec.shape).numel(), hash_name(spec.name));
      writer.write(spec.name, values.data(), values.size() * sizeof(double));
    }
    writer.finish();
  }
  static void base(const Parameter& p, int64_t first, Tensor& values) {
    const Doubles all = test::random_values(p.numel(), hash_name(p.name()), -0.6, 0.6);
    Tensor exact =
        test::make_tensor(values.backend(), values.shape(), DType::kF64,
                          Doubles(all.begin() + first, all.begin() + first + values.numel()));
    values.backend().run(values.backend().compute_stream(), CastArgs{exact, values});
  }
  Doubles logits(CausalLM& of, const FillFunction& fill) {
    for (Parameter* p : of.parameters()) {
      Tensor values = Tensor::empty(backend, Shape{p->numel()}, DType::kF64);
      fill(*p, 0, values);
      p->set_value(values.view(p->shape()));
    }
    const Tensor tokens =
        Tensor::from_host(backend, Shape{2, 5}, std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 0});
    return of.logits(tokens, {}).to_doubles();
  }

  cpu::CpuBackend backend;
  CausalLM model;  // plain
  TempFolder folder;
  std::string left_out;
  std::vector<SafetensorsSpec> more;
};

TEST_CASE("adapter folder: the merged model computes what base and adapter compute apart") {
  std::vector<ModelConfig> configs = test::tiny_of_every_family();
  for (const ModelConfig& uneven :
       {test::tiny_gpt2(), test::tiny_llama(), test::tiny_bloom(), test::tiny_neox()}) {
    configs.push_back(uneven);
  }
  for (const ModelConfig& config : configs) {
    CAPTURE(config.family);
    Fixture f(config);
    const LoraConfig lora = {.r = 3,
                             .alpha = 7,
                             .targets = {"all-linear"},
                             .excluded_pattern = ".*[.]1[.].*(q_proj|c_fc|4h)",
                             .ranks = {{"[a-z_]*[.]0[.].*", 2}, {".*", 4}},
                             .alphas = {{".*down_proj", 2}, {"dense", 5}}};
    f.write(lora);
    CausalLM adapted(config, f.backend, DType::kF64, 8);
    add_lora(adapted, lora);
    const Doubles apart = f.logits(adapted, with_adapter(Fixture::base, f.folder.path(), adapted));
    const Doubles merged =
        f.logits(f.model, merged_with_adapter(Fixture::base, f.folder.path(), f.model));
    const Doubles without = f.logits(f.model, Fixture::base);
    double largest = 0, error = 0, effect = 0;
    for (size_t i = 0; i < apart.size(); ++i) {
      largest = std::max(largest, std::abs(apart[i]));
      error = std::max(error, std::abs(merged[i] - apart[i]));
      effect = std::max(effect, std::abs(without[i] - apart[i]));
    }
    CHECK(error < 1e-12 * largest);
    CHECK(effect > 0.01 * largest);
  }
}

TEST_CASE("adapter folder: what any family saves by default is read back, or has no name there") {
  for (const ModelConfig& config : test::tiny_of_every_family()) {
    CAPTURE(config.family);
    Fixture f(config);
    if (config.family == "workshop_gpt") {  // its query, key and value are no layer in PyTorch
      CHECK(contains(test::error_of([&] { f.write({.r = 3}); }),
                     "so they must be given: there are self_attn.out_proj, linear1, linear2"));
      continue;
    }
    f.write({.r = 3});
    CausalLM adapted(config, f.backend, DType::kF64, 8);
    add_lora(adapted, {.r = 3});
    CHECK(f.logits(adapted, with_adapter(Fixture::base, f.folder.path(), adapted)) !=
          f.logits(f.model, Fixture::base));
  }
}

TEST_CASE("adapter folder: merged values are the same in any pieces, rounded once") {
  for (const ModelConfig& config : {test::tiny_gpt2(1), test::tiny_llama(1)}) {
    Fixture f(config);
    f.write({.r = 3, .alpha = 7, .targets = {"all-linear"}});
    const FillFunction fill = merged_with_adapter(Fixture::base, f.folder.path(), f.model);
    for (const Parameter* p : f.model.parameters()) {
      Tensor whole = Tensor::empty(f.backend, Shape{p->numel()}, DType::kF64);
      fill(*p, 0, whole);
      for (const int64_t piece : {1, 29}) {
        Doubles pieces;
        for (int64_t first = 0; first < p->numel(); first += piece) {
          const int64_t count = std::min(piece, p->numel() - first);
          Tensor part = Tensor::empty(f.backend, Shape{count}, DType::kBF16);
          fill(*p, first, part);
          for (const double x : part.to_doubles()) pieces.push_back(x);
        }
        CHECK(pieces == test::rounded(whole.to_doubles(), DType::kBF16));
      }
    }
  }
}

TEST_CASE("adapter folder: everything that is wrong with the tensors is in one error") {
  Fixture f(test::tiny_gpt2());
  f.left_out = "blocks.1.attention.qkv.lora_A.weight";
  f.more = {{"base_model.model.transformer.h.2.attn.c_attn.lora_A.weight", DType::kF64, {2, 15}}};
  f.write({.r = 2, .targets = {"c_attn"}});
  const auto error = [&] {
    return test::error_of([&] { merged_with_adapter(Fixture::base, f.folder.path(), f.model); });
  };
  const std::string first = error();
  CAPTURE(first);
  CHECK(contains(first,
                 "missing: base_model.model.transformer.h.1.attn.c_attn.lora_A.weight (2, 15)"));
  CHECK(contains(first, "unexpected: base_model.model.transformer.h.2.attn.c_attn.lora_A.weight"));
  CHECK(std::count(first.begin(), first.end(), '\n') == 2);
  f.folder.write(kAdapterConfigFile,
                 adapter_config_json(f.model.config(), {.r = 5, .targets = {"c_attn"}}));
  CHECK(contains(error(),
                 "shape: base_model.model.transformer.h.0.attn.c_attn.lora_A.weight: "
                 "expected (5, 15), got (2, 15)"));
  std::filesystem::remove(f.folder / kAdapterWeightsFile);
  CHECK(contains(error(), "no adapter_model.safetensors"));
  f.folder.write("adapter_model.bin", "<!doctype html>");
  CHECK(contains(error(), "adapter_model.bin: expected a file of safetensors, got a web page"));
  f.folder.write("adapter_model.bin", "\x80\x02}q");
  CHECK(contains(error(),
                 "adapter_model.bin: a pickle, which is not read; in Python, "
                 "safetensors.torch.save_file(torch.load("));
}

TEST_CASE("adapter folder: the adapter of another model") {
  cpu::CpuBackend backend;
  CausalLM wide(test::tiny_gpt2(), backend, DType::kF64, 8);
  const std::string error =
      test::error_of([&] { merged_with_adapter(Fixture::base, kFixture, wide); });
  CHECK(contains(error, "lora_A.weight: expected (4, 15), got (4, 24)"));
  CHECK(contains(error, "lora_B.weight: expected (45, 4), got (72, 4)"));
  CausalLM llama(test::tiny_llama(), backend, DType::kF64, 8);
  CHECK(contains(test::error_of([&] { merged_with_adapter(Fixture::base, kFixture, llama); }),
                 "\"c_attn\" matches no linear layer in the blocks of a llama model"));
}

}  // namespace
}  // namespace fsdp::models
