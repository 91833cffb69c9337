// Which parameter goes to which unit, and ties that no unit could hold.
#include "comm/fsdp/plan.h"

#include <doctest/doctest.h>

#include "tests/support/module_tree.h"
#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

const WrapPolicy kBlocks =
    wrap_where([](const Module& module) { return module.class_name() == "Block"; });

std::vector<std::string> names(const PlannedUnit& unit) {
  std::vector<std::string> out;
  for (const Parameter* p : unit.parameters) out.push_back(p->name());
  return out;
}
using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a unit per block after the root, which holds the rest, in order of registration") {
  Tree root("", "Root");
  root.parameter("embedding");
  Tree& first = root.child("first", "Block");
  first.parameter("w");
  first.child("mlp", "Mlp").parameter("w");
  Tree& group = root.child("group", "Group");  // not wrapped: its own parameters are the root's
  group.parameter("w");
  group.child("second", "Block").parameter("w");
  root.parameter("head");

  const std::vector<PlannedUnit> units = plan_units(root, kBlocks);
  REQUIRE(units.size() == 3);
  CHECK(units[0].name == "root");
  CHECK(units[0].modules == std::vector<Module*>{&root});
  CHECK(names(units[0]) == Names{"embedding", "head", "group.w"});
  CHECK(units[1].name == "first");
  CHECK(units[1].modules == std::vector<Module*>{&first});
  CHECK(names(units[1]) == Names{"first.w", "first.mlp.w"});
  CHECK(units[2].name == "group.second");
  CHECK(names(units[2]) == Names{"group.second.w"});
}

TEST_CASE("a block inside a block is a unit of its own") {
  Tree root("", "Root");
  Tree& outer = root.child("outer", "Block");
  outer.parameter("w");
  outer.child("inner", "Block").parameter("w");
  const std::vector<PlannedUnit> units = plan_units(root, kBlocks);
  REQUIRE(units.size() == 3);
  CHECK(units[0].parameters.empty());
  CHECK(names(units[1]) == Names{"outer.w"});
  CHECK(names(units[2]) == Names{"outer.inner.w"});
}

TEST_CASE("nothing wrapped: one unit") {
  Tree root("", "Root");
  root.child("block", "Block").parameter("w");
  const std::vector<PlannedUnit> units = plan_units(root, wrap_nothing());
  REQUIRE(units.size() == 1);
  CHECK(names(units[0]) == Names{"block.w"});
}

TEST_CASE("a tie inside a unit counts once") {
  Tree root("", "Root");
  Parameter& table = root.parameter("embedding");
  root.child("head", "Head").share(table);
  Tree& block = root.child("block", "Block");
  block.child("mlp", "Mlp").share(block.parameter("w"));
  const std::vector<PlannedUnit> units = plan_units(root, kBlocks);
  CHECK(names(units[0]) == Names{"embedding"});
  CHECK(names(units[1]) == Names{"block.w"});
}

TEST_CASE("a tie across units is refused by the names of the parameter and both units") {
  const auto refused = [](bool root_first) {
    Tree root("", "Root");
    Tree& first = root.child("first", "Block");
    Tree& second = root.child("second", "Block");
    if (root_first) {
      second.share(root.parameter("embedding"));
    } else {
      second.share(first.parameter("w"));
    }
    return error_of([&] { plan_units(root, kBlocks); });
  };
  CHECK(
      refused(true) ==
      "[fsdp] wrap policy: embedding of unit 'root' and second.embedding of unit 'second' are one "
      "tied parameter, which must lie in one unit: leave both to the unit around them (fsdp.wrap, "
      "fsdp.wrap_classes, fsdp.min_num_params), or untie them (model.tie_embeddings: false). "
      "PyTorch's plan:\n"
      "  first (Block): 0 parameters in 0 tensors\n"
      "  second (Block): 15 parameters in 1 tensors\n"
      "  root (Root): 15 parameters in 1 tensors");
  CHECK(refused(false) ==
        "[fsdp] wrap policy: first.w of unit 'first' and second.w of unit 'second' are one tied "
        "parameter, which must lie in one unit: leave both to the unit around them (fsdp.wrap, "
        "fsdp.wrap_classes, fsdp.min_num_params), or untie them (model.tie_embeddings: false). "
        "PyTorch's plan:\n"
        "  first (Block): 15 parameters in 1 tensors\n"
        "  second (Block): 15 parameters in 1 tensors\n"
        "  root (Root): 0 parameters in 0 tensors");
}

TEST_CASE("wrapping order: children before parents, the root last") {
  Tree root("", "Root");
  root.child("a", "Block").child("b", "Block").child("c", "Block");
  root.child("d", "Block").child("e", "Block");
  root.child("f", "Block");
  const std::vector<PlannedUnit> units = plan_units(root, kBlocks);
  Names order;
  for (const size_t i : wrapping_order(units)) order.push_back(units[i].name);
  CHECK(order == Names{"a.b.c", "a.b", "a", "d.e", "d", "f", "root"});
  CHECK(units[3].depth == 3);
  CHECK(units[units[3].around].name == "a.b");
}

TEST_CASE("a tied head and its table lie in the root unit") {
  cpu::CpuBackend backend;
  for (const auto& [config, blocks, root_parameters] :
       {std::tuple{small_gpt2(), 3, 4}, std::tuple{small_llama(), 3, 3}}) {
    models::CausalLM model(config, backend, DType::kF32, 5);
    const auto units = plan_units(model, wrap_classes({config.block_class}));
    CHECK(static_cast<int>(units.size()) == 1 + blocks);
    CHECK(static_cast<int>(units[0].parameters.size()) == root_parameters);
    size_t total = 0;
    for (const PlannedUnit& unit : units) total += unit.parameters.size();
    CHECK(total == model.parameters().size());
  }
}

TEST_CASE("a group of modules that the policy leaves to the root is one unit, where it begins") {
  Tree root("", "Root");
  Tree& base = root.child("base", "Base");
  base.child("tokens", "Table").parameter("w");
  base.child("rest", "Rest").parameter("w");
  base.child("first", "Block").child("mlp", "Mlp").parameter("w");
  Tree& norm = base.child("norm", "Norm");
  norm.parameter("w");
  Tree& head = root.child("head", "Linear");
  head.parameter("w");
  const auto units_with = [&](const WrapPolicy& policy) {
    return plan_units(root, split_root(policy, [&](Module&) {
                        return std::vector<ModuleGroup>{
                            {.name = "end", .modules = {&norm, &head}, .awaits_backward = true}};
                      }));
  };
  const std::vector<PlannedUnit> units = units_with(kBlocks);
  REQUIRE(units.size() == 3);
  CHECK(names(units[0]) == Names{"base.tokens.w", "base.rest.w"});
  CHECK(units[2].name == "end");
  CHECK(units[2].modules == std::vector<Module*>{&norm, &head});
  CHECK(names(units[2]) == Names{"base.norm.w", "head.w"});
  CHECK(units[2].depth == 1);
  CHECK(units[2].around == 0);
  CHECK(units[2].part_of_root);
  CHECK(units[2].awaits_backward);
  CHECK(!units[1].part_of_root);
  CHECK(!units[1].awaits_backward);
  CHECK(units[0].awaits_backward);
  // A module of it is a unit, or inside one: the group stays as the policy has left it.
  for (const char* taken : {"Linear", "Norm", "Base"}) {
    CAPTURE(taken);
    for (const PlannedUnit& unit : units_with(wrap_classes({taken}))) CHECK(unit.name != "end");
  }
  // A tie to what is outside of it.
  root.child("late", "Rest").share(*head.parameters()[0]);
  CHECK(contains(error_of([&] { units_with(kBlocks); }),
                 "late.w of unit 'root' and head.w of unit 'end' are one tied parameter"));
}
