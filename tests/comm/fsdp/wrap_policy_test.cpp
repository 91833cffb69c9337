// Wrap policies: against PyTorch's own plans of seven models (tests/fixtures/fsdp/units.json, made
// with its policy code on its meta device), and the corners that no model shows.
// Requirements: S0.4, S1.11, S2.3, S3.3.
#include <doctest/doctest.h>

#include "comm/fsdp/plan.h"
#include "core/io/json.h"
#include "kernels/cpu/cpu_backend.h"
#include "models/causal_lm.h"
#include "models/names.h"
#include "tests/support/module_tree.h"
#include "tests/support/temp_folder.h"
#include "tools/predict/unit_table.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

// ---------------------------------------------------------------------------- PyTorch's plans

models::ModelConfig config_of(const Json& model, const TempFolder& folder) {
  Json config = model["config"];
  if (config.contains("family")) {
    const Json family = config["family"];  // a copy: the next key may move the values
    config["model_type"] = family;
  }
  return models::read_config(folder.write("config.json", config.dump()));
}

// A parameter's Hugging Face name without its last part is the module that owns it; what the names
// below a module have in common is that module.
std::string hugging_face_path(const models::ModelConfig& config, const Module& module) {
  if (module.name().empty()) return "";
  // A tied head owns no parameter of its own name.
  if (module.name() == "head") {
    const std::string name = models::hugging_face_name(config, "head.weight");
    return name.substr(0, name.rfind('.'));
  }
  std::string common;
  for (const Parameter* parameter : module.parameters()) {
    const std::string name = models::hugging_face_name(config, parameter->name());
    const std::string owner = name.substr(0, name.rfind('.') + 1);
    if (common.empty()) common = owner;
    while (!owner.starts_with(common)) common.erase(common.rfind('.', common.size() - 2) + 1);
  }
  return common.substr(0, common.size() - 1);
}

WrapPolicy policy_named(const std::string& name, const models::ModelConfig& config) {
  if (name == "none") return wrap_nothing();
  if (name == "transformer") return wrap_classes({config.block_class});
  REQUIRE(name.starts_with("size_"));
  return wrap_by_size(std::stoll(name.substr(5)));
}

void check_parameters(const models::ModelConfig& config, const PlannedUnit& unit,
                      const std::string& path, const Json& kind) {
  CHECK(unit.numel() == kind["numel"].get<int64_t>());
  const Json& expected = kind["parameters"];
  REQUIRE(unit.parameters.size() == expected.size());
  std::vector<Shape> shapes;
  for (size_t i = 0; i < expected.size(); ++i) {
    const Parameter& parameter = *unit.parameters[i];
    const std::string full = (path.empty() ? "" : path + ".") + expected[i][0].get<std::string>();
    // The head's weight, where tied, is the table's here.
    if (full != "lm_head.weight" || !config.tied_head) {
      CHECK(models::hugging_face_name(config, parameter.name()) == full);
    }
    CHECK(parameter.shape() == Shape(expected[i][1].get<std::vector<int64_t>>()));
    shapes.push_back(parameter.shape());
  }
  for (const auto& [ranks_text, shard] : kind["shard"].items()) {
    const int ranks = std::stoi(ranks_text);
    CAPTURE(ranks);
    CHECK(tools::fsdp1_shard(shapes, ranks) == shard["fsdp1"].get<int64_t>());
    CHECK(tools::fsdp1_original_shard(shapes, ranks, 4) == shard["fsdp1_orig_f32"].get<int64_t>());
    CHECK(tools::fsdp1_original_shard(shapes, ranks, 2) ==
          shard["fsdp1_orig_16bit"].get<int64_t>());
    const tools::Fsdp2Shards fsdp2 = tools::fsdp2_shards(shapes, ranks);
    CHECK(fsdp2.padded == shard["fsdp2_padded"].get<int64_t>());
    CHECK(fsdp2.held == shard["fsdp2_real"].get<std::vector<int64_t>>());
  }
}

void check_plan(Module& model, const models::ModelConfig& config, const std::string& name,
                const Json& expected) {
  const WrapPolicy policy = policy_named(name, config);
  const std::vector<PlannedUnit> units = unchecked_units(model, policy);
  REQUIRE(units.size() == expected["units"].size());
  size_t i = 0;
  for (const size_t unit : wrapping_order(units)) {
    const Json& entry = expected["units"][i++];
    const std::string path = hugging_face_path(config, *units[unit].modules[0]);
    CAPTURE(path);
    CHECK(path == entry[0].get<std::string>());
    check_parameters(config, units[unit], path, expected["kinds"][entry[1].get<size_t>()]);
  }
  const std::string refusal = error_of([&] { plan_units(model, policy); });
  CHECK(refusal.empty() == expected["split_tied"].empty());
  if (refusal.empty()) return;
  CHECK(contains(refusal, "embedding.tokens.weight of unit '"));
  CHECK(contains(refusal, "head.weight of unit '"));
}

TEST_CASE("wrap policies: PyTorch's units, their order, parameters and shard sizes") {
  const Json file = read_json_file(fixture_path("fsdp") / "units.json");
  const TempFolder folder;
  cpu::CpuBackend backend;
  for (const char* name : {"tiny_gpt2", "tiny_llama", "gpt2-124M", "bloom-560m", "pythia-1b",
                           "llama-7b", "mistral-7b"}) {
    CAPTURE(name);
    const Json& expected = file["models"][name];
    const models::ModelConfig config = config_of(expected, folder);
    CHECK(config.block_class == expected["block_class"].get<std::string>());
    CHECK(config.parameter_count() == expected["parameters"].get<int64_t>());
    models::CausalLM model(config, backend, DType::kF32, /*max_length=*/1);
    for (const auto& [policy, plan] : expected["policies"].items()) {
      CAPTURE(policy);
      check_plan(model, config, policy, plan);
    }
  }
  // The module tree of 7 billion parameters: a few rotary frequencies.
  CHECK(backend.ledger().usage().total_peak < 1 << 20);
}

// ---------------------------------------------------------------------------- Corners

std::vector<std::string> wrapped(Module& root, const WrapPolicy& policy) {
  std::vector<std::string> names;
  for (const PlannedUnit& unit : unchecked_units(root, policy)) names.push_back(unit.name);
  return names;
}
using Names = std::vector<std::string>;

TEST_CASE("by class: every name must be known; the nearest comes first") {
  Tree root("", "Root");
  root.child("a", "GPT2Block").child("norm", "LayerNorm").parameter("w");
  root.child("b", "GPT2MLP").parameter("w");
  CHECK(wrapped(root, wrap_classes({"GPT2MLP", "LayerNorm"})) == Names{"root", "a.norm", "b"});
  CHECK(
      error_of([&] {
        wrap_classes({"LayerNorm", "GPTBlock"})(root);
      }) ==
      "[fsdp] wrap policy: no module of class 'GPTBlock'; this model has GPT2Block, GPT2MLP, Root, "
      "LayerNorm");
  CHECK(wrapped(root, wrap_classes({})) == Names{"root"});
}

TEST_CASE("by predicate: any modules but the root") {
  Tree root("", "Block");
  root.child("a", "Block").child("b", "Block").parameter("w");
  const auto policy = wrap_where([](const Module& m) { return m.class_name() == "Block"; });
  CHECK(wrapped(root, policy) == Names{"root", "a", "a.b"});
}

TEST_CASE("by size: at least so many, not wrapped below, and never a container") {
  Tree root("", "Root");  // parameters of 15 elements
  Tree& list = root.child("list", "ModuleList");
  list.child("0", "Block").parameter("w");
  Tree& second = list.child("1", "Block");
  second.parameter("v");
  second.child("inner", "Inner").parameter("w");
  CHECK(wrapped(root, wrap_by_size(15)) == Names{"root", "list.0", "list.1", "list.1.inner"});
  CHECK(wrapped(root, wrap_by_size(16)) == Names{"root", "list.1"});
  CHECK(wrapped(root, wrap_by_size(30)) == Names{"root", "list.1"});
  CHECK(wrapped(root, wrap_by_size(31)) == Names{"root"});  // the list has 45
  CHECK(error_of([] { wrap_by_size(0); }) ==
        "[fsdp] min_num_params: expected a positive number, got 0");
}

}  // namespace
