// The table: sizes by hand.
#include "tools/predict/unit_table.h"

#include <doctest/doctest.h>

#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"
#include "tools/predict/meta_run.h"

namespace fsdp::tools {
namespace {

using comm::FsdpOptions;
using comm::Strategy;

constexpr comm::GroupSizes kTwo = {.shards = 2};

std::vector<UnitRow> units_of(const models::ModelConfig& model, const FsdpOptions& options,
                              int ranks) {
  PlacedOptions session = {{.model = model, .max_length = 1}};
  session.fsdp = options;
  return unit_rows(MetaRun(session, ranks).session().sharded());
}

TEST_CASE("unit table: a frozen shard is as wide as compute") {
  const FsdpOptions options = {.param_dtype = DType::kBF16};
  // 2 bytes here, not 4.
  const UnitRow unit = {.name = "root",
                        .shapes = {Shape{64}, Shape{128}},
                        .parameters = 192 << 10,
                        .segments = {{64 << 10, 1, true}, {128 << 10, 1, false}},
                        .policy = comm::unit_policy(options, {}, true)};
  const std::string table = format_units({unit}, options, {});
  CHECK(test::contains(table, "0.50"));
}

TEST_CASE("unit table: sizes for many ranks, by hand") {
  const models::ModelConfig model = test::small_llama();
  const auto units = units_of(model, {}, 512);
  REQUIRE(units.size() == static_cast<size_t>(model.layers) + 1);
  int64_t parameters = 0;
  for (const UnitRow& unit : units) {
    parameters += unit.parameters;
    // 512 slots of whole cache lines.
    CHECK(unit.shard_numel() % 64 == 0);
    CHECK(unit.shard_numel() * 512 >= unit.parameters);
    CHECK((unit.shard_numel() - 64) * 512 <
          unit.parameters + 64 * static_cast<int64_t>(unit.shapes.size()));
  }
  CHECK(parameters == model.parameter_count());
}

TEST_CASE("unit table: a group size that does not divide the ranks") {
  const FsdpOptions options = {.strategy = Strategy::kHybridShard, .shard_size = 3};
  CHECK(test::contains(test::error_of([&] { comm::group_sizes(options, 8); }),
                       "fsdp.shard_size: expected a divisor of 8 ranks, got 3"));
  CHECK(comm::group_sizes(options, 9).replicas == 3);
}

TEST_CASE("unit table: units that differ have a line of their own that says how") {
  const FsdpOptions options = {
      .param_dtype = DType::kBF16,
      .units = {{.match = "blocks.0", .reshard_after_forward = false, .param_dtype = DType::kF32},
                {.match = "blocks.1", .strategy = Strategy::kShardOptimizer}}};
  const auto units = units_of(test::small_llama(), options, 2);
  const std::string table = format_units(units, options, kTwo);
  CHECK(!test::contains(table, ".."));
  CHECK(test::contains(table, "  parameters in f32, kept after forward\n"));
  CHECK(test::contains(table, "  kept after forward, gradients whole\n"));
}

TEST_CASE("unit table: MiB of a shard, where a frozen parameter is not wide") {
  const FsdpOptions options = {.param_dtype = DType::kBF16};
  const auto segments = [](bool trainable) {
    return std::vector<SegmentExtent>{{1 << 20, 1, trainable}};
  };
  const auto unit = [&](const char* name, bool trainable) {
    return UnitRow{.name = name,
                   .shapes = {Shape{2 << 20}},
                   .parameters = 2 << 20,
                   .segments = segments(trainable),
                   .policy = comm::unit_policy(options, kTwo, false)};
  };
  const std::string table = format_units({unit("a", true), unit("b", false)}, options, kTwo);
  CHECK(test::contains(table, "1048576        4.00          4.00\n"));  // a: not alike
  CHECK(test::contains(table, "1048576        2.00          4.00\n"));  // b
  CHECK(test::contains(table, "2097152        6.00          8.00\n"));  // all
}

TEST_CASE("unit table: texts") {
  std::vector<UnitRow> units = {
      {.name = "root", .shapes = {Shape{7, 10}}, .parameters = 70, .segments = {{64, 1}}}};
  for (int i = 0; i < 9; ++i) {
    units.push_back({.name = fmt::format("blocks.{}", i),
                     .shapes = {Shape{9, 10}, Shape{10}},
                     .parameters = 100,
                     .depth = 1,
                     .segments = {{64, 2}}});
  }
  const std::string table = format_units(units, {}, kTwo);
  CHECK(test::contains(table, "blocks.0 .. blocks.8"));
  CHECK(test::contains(table, "28"));  // of padding: 2 x 64 - 100
  CHECK(test::contains(format_units(units, {}, {.shards = 1 << 30}),
                       " 68719476636 "));  // 2^36 - 100, alone
  // 9 rows on 2 ranks are 5 and 4, of 10 elements; and 10 elements 5 and 5.
  CHECK(
      test::contains(format_layout(units, PyTorchLayout::kFsdp2, 2, DType::kF32),
                     "blocks.0 .. blocks.8                  64              55          45 to 55"));
  CHECK(test::contains(format_layout(units, PyTorchLayout::kFsdp1, 2, DType::kF32),
                       "blocks.0 .. blocks.8                  64              50"));
}

}  // namespace
namespace {

TEST_CASE("durations: three digits, in the unit that leaves one to three before the point") {
  CHECK(duration_text(9.68365) == "9.68 s");
  CHECK(duration_text(299.7) == "300 s");
  CHECK(duration_text(1234) == "1230 s");
  CHECK(duration_text(0.0123456) == "12.3 ms");
  CHECK(duration_text(0.5) == "500 ms");
  CHECK(duration_text(845.3e-6) == "845 us");
  CHECK(duration_text(2e-6) == "2.00 us");
  CHECK(duration_text(3.456e-9) == "0.00 us");
  CHECK(duration_text(0) == "0 s");
}

TEST_CASE("durations: what rounds up to the next unit is in that unit") {
  CHECK(duration_text(999.9e-6) == "1.00 ms");
  CHECK(duration_text(0.9996) == "1.00 s");
  CHECK(duration_text(9.996) == "10.0 s");
  CHECK(duration_text(99.96e-3) == "100 ms");
  CHECK(duration_text(1) == "1.00 s");
  CHECK(duration_text(1e-3) == "1.00 ms");
}

// wrap_policy_test.cpp compares whole models with PyTorch.
TEST_CASE("PyTorch's shards of a matrix of 5 x 3 and a bias of 5") {
  const std::vector<Shape> parameters = {{5, 3}, {5}};
  CHECK(fsdp1_shard(parameters, 3) == 7);              // 20 -> 21
  CHECK(fsdp1_original_shard(parameters, 3, 4) == 7);  // 15 -> 16, + 5 = 21
  CHECK(fsdp1_original_shard(parameters, 1, 2) == 21);
  CHECK(fsdp1_original_shard(parameters, 4, 4) == 6);
  const Fsdp2Shards shards = fsdp2_shards(parameters, 4);  // 2, 2, 1, 0 rows
  CHECK(shards.padded == 8);
  CHECK(shards.held == std::vector<int64_t>{8, 8, 4, 0});
}

TEST_CASE("PyTorch's shards of nothing") {
  CHECK(fsdp1_shard({}, 2) == 0);
  CHECK(fsdp1_original_shard({}, 2, 4) == 0);
  CHECK(fsdp2_shards({}, 2).held == std::vector<int64_t>{0, 0});
}

}  // namespace
}  // namespace fsdp::tools
