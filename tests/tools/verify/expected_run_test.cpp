// The layout "run" of reference folders: which runs are compared, and what is refused by name.
#include <cmath>
#include <filesystem>

#include <doctest/doctest.h>

#include "tests/support/reference_copy.h"
#include "tools/verify/expected_results.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::fixture_path;
using test::ReferenceCopy;

TEST_CASE("rows of all ranks in order, tolerance of the case, f64 variant") {
  const fs::path folder = fixture_path("fsdp/gpt2_fp32_w2");
  const ExpectedResults f32 = read_expected_results(folder, {.dtype = DType::kF32});
  CHECK(f32.layout == "run");
  REQUIRE(f32.trajectories.size() == 1);  // the other variants repeat the main run
  CHECK(f32.trajectories[0].variant == "");
  CHECK(f32.trajectories[0].steps.size() == 20);
  CHECK(f32.trajectories[0].steps[0].batch.rows == 8);
  CHECK(f32.trajectories[0].steps[0].learning_rate == 0.003);
  CHECK(*f32.trajectories[0].grad_norm_limit == 5e-6);
  CHECK(*f32.trajectories[0].parameter_rms_limit == 1e-6);
  CHECK(f32.pass->gradient_norms.size() == 40);
  const ExpectedResults f64 = read_expected_results(folder, {.dtype = DType::kF64});
  REQUIRE(f64.trajectories.size() == 1);
  CHECK(f64.trajectories[0].variant == "f64");
  CHECK(*f64.trajectories[0].parameter_limit == 1e-12);
  CHECK(!f64.pass);
  const ExpectedResults without_final =
      read_expected_results(fixture_path("fsdp/gpt2_fp32_w3"), {.dtype = DType::kF64});
  CHECK(!without_final.trajectories[0].final_parameters);
  REQUIRE(without_final.notes.size() == 1);
  CHECK(contains(without_final.notes[0], "final_f64.safetensors does not exist"));
}

TEST_CASE("options of a run that cannot be repeated are refused by name, unknown ones too") {
  const struct {
    const char* pointer;
    Json value;
    const char* named;
  } cases[] = {
      {"/run/param_dtype", "f8", "run.param_dtype = \"f8\""},
      {"/run/strategy", "fsdp3_full", "run.strategy = \"fsdp3_full\""},
      {"/run/sync", "sometimes", "run.sync = \"sometimes\""},
      {"/run/unused", "random", "run.unused = \"random\""},
      {"/run/normalise", "row", "run.normalise = \"row\""},
      {"/run/lr_schedule", "cosine", "run.lr_schedule = \"cosine\""},
      {"/run/labels", "some", "run.labels = \"some\""},
      {"/run/something_new", true, "run.something_new"},
      {"/run/adamw/amsgrad", true, "run.adamw.amsgrad"},
      {"/run/clip/foreach", true, "run.clip.foreach"},
  };
  for (const auto& c : cases) {
    const ReferenceCopy copy("fsdp/gpt2_fp32_w3");
    copy.set("reference.json", c.pointer, c.value);
    CHECK_MESSAGE(contains(copy.unsupported(), c.named), copy.unsupported());
    CHECK(contains(copy.unsupported(), "not supported by this build"));
  }
}

TEST_CASE("options become those of our run; who needs how many ranks") {
  const ReferenceCopy copy("fsdp/gpt2_fp32_w2");
  const auto read = [&] { return read_expected_results(copy.path(), {}).trajectories.at(0); };
  CHECK(!read().run.ranks);
  copy.set("reference.json", "/run/accum", 2);
  copy.set("reference.json", "/run/sync", "last");
  copy.set("reference.json", "/run/strategy", "fsdp1_hybrid_zero2");
  copy.set("reference.json", "/run/unused", "zero");
  copy.set("reference.json", "/run/freeze", Json::array({"transformer.wte.weight"}));
  copy.set("reference.json", "/run/skip", Json{{"block", 1}, {"steps", {4, 9}}});
  copy.set("reference.json", "/run/reduce_dtype", "bf16");
  const ExpectedTraining t = read();
  CHECK(t.run.ranks == 2);
  CHECK(t.run.fsdp.micro_steps == 2);
  CHECK(t.run.fsdp.accumulation == comm::Accumulation::kReduceLast);
  CHECK(t.run.fsdp.strategy == comm::Strategy::kHybridShardZero2);
  CHECK(t.run.fsdp.shard_size == 1);
  CHECK(t.run.fsdp.split_division);
  CHECK(t.run.fsdp.absent_is_zero);
  CHECK(t.run.fsdp.reduce_dtype == DType::kBF16);
  CHECK(t.run.loss_mean == LossMean::kRanks);
  CHECK(t.run.frozen == std::vector<std::string>{"transformer.wte.weight"});
  CHECK(t.steps[4].events.left_out == std::vector<int64_t>{1});
  CHECK(t.steps[5].events.left_out.empty());
  CHECK(read_expected_results(copy.path(), {}).pass->events.left_out.empty());
  copy.set("reference.json", "/run/skip/steps", {0});
  copy.set("reference.json", "/run/inject", Json{{"step", 0}, {"rank", 1}});
  ExpectedResults expected = read_expected_results(copy.path(), {});
  CHECK(expected.pass->events.left_out == std::vector<int64_t>{1});
  CHECK(expected.pass->events.infinite_rank == 1);
  CHECK(contains(test::error_of([&] { expected.leave_out_runs_of_other_ranks(3); }),
                 "needs 2 ranks, these are 3"));
  copy.set("reference.json", "/run/skip/steps", {20});
  CHECK(contains(copy.error(), "run.skip.steps[0]: expected a whole number from 0 to 19, got 20"));
}

TEST_CASE("numbers of a run that cannot be are refused by name") {
  const struct {
    const char* pointer;
    Json value;
    const char* message;
  } cases[] = {
      {"/world_size", 0, "world_size: expected a whole number from 1"},
      {"/world_size", 3, "with world_size 3 and run.accum 1, got (20, 2, 4, 13)"},
      {"/run/accum", 0, "run.accum: expected a whole number from 1"},
      {"/run/accum", 3, "with world_size 2 and run.accum 3, got (20, 2, 4, 13)"},
      {"/run/accum", 1.5, "run.accum: expected a whole number from 1"},
      {"/run/adamw/lr", -1, "run.adamw.lr: expected at least 0, got -1"},
      {"/run/clip/max_norm", -1, "run.clip.max_norm: expected at least 0, got -1"},
      {"/run/clip/norm_type", 0, "run.clip.norm_type: expected at least 1, got 0"},
      {"/run/inject", Json{{"step", 3}, {"rank", 2}}, "run.inject.rank: expected a whole number"},
  };
  for (const auto& c : cases) {
    const ReferenceCopy copy("fsdp/gpt2_fp32_w2");
    copy.set("reference.json", c.pointer, c.value);
    CHECK_MESSAGE(contains(copy.error(), c.message), copy.error());
  }
}

TEST_CASE("a hybrid run has the mesh of its folder; one whose mesh is a guess is refused") {
  const ReferenceCopy copy("fsdp/gpt2_accum3_hybrid_w4");
  const auto read = [&] { return read_expected_results(copy.path(), {}).trajectories.at(0).run; };
  CHECK(read().fsdp.shard_size == 2);
  CHECK(!read().fsdp.split_division);
  copy.set("reference.json", "/world_size", 8);
  CHECK_MESSAGE(
      contains(copy.unsupported(), "run.strategy = \"fsdp2_hybrid\" on 8 ranks without run.mesh"),
      copy.unsupported());
  copy.set("reference.json", "/world_size", 4);
  copy.set("reference.json", "/run/mesh", {1, 4});
  CHECK(read().fsdp.shard_size == 4);
  copy.set("reference.json", "/run/mesh", {2, 2});
  CHECK(read().fsdp.shard_size == 2);
  for (const Json& wrong : {Json{2, 1}, Json{4}, Json{-2, -2}, Json{8, 0.5}}) {
    copy.set("reference.json", "/run/mesh", wrong);
    CHECK_MESSAGE(contains(copy.error(), "run.mesh: expected [replicas, shards] of 4 ranks, got ["),
                  copy.error());
  }
}

TEST_CASE("variants that are another run here as well are compared when asked for") {
  const fs::path folder = fixture_path("fsdp/gpt2_fp32_w2");
  const auto names = [&](DType dtype) {
    std::vector<std::string> out;
    const ExpectedResults all =
        read_expected_results(folder, {.dtype = dtype, .all_variants = true});
    for (const ExpectedTraining& t : all.trajectories) out.push_back(t.variant);
    return out;
  };
  CHECK(names(DType::kF32) == std::vector<std::string>{"", "ddp", "fsdp1"});
  CHECK(names(DType::kF64) == std::vector<std::string>{"f64", "f64_sharded"});
}

TEST_CASE("a variant with final parameters of its own is compared where the main run cannot be") {
  const ReferenceCopy copy("fsdp/gpt2_fp32_w3");
  copy.set("reference.json", "/run/lr_schedule", "cosine");
  const Json main = read_json_file(copy.path() / "reference.json");
  copy.set("reference.json", "/variants/token",
           Json{{"note", ""},
                {"options", {{"lr_schedule", "constant"}}},
                {"trajectory", main["trajectory"]}});
  fs::copy_file(copy.path() / "final.safetensors", copy.path() / "final_token.safetensors");
  const ExpectedResults expected = read_expected_results(copy.path(), {.dtype = DType::kF32});
  REQUIRE(expected.trajectories.size() == 1);
  CHECK(expected.trajectories[0].variant == "token");
  CHECK(!expected.pass);
  REQUIRE(expected.left_out.size() == 1);
  CHECK(contains(expected.left_out[0], "main run: not compared: run.lr_schedule"));
}

TEST_CASE("a variant that cannot be repeated is left out by name, without final parameters too") {
  const ReferenceCopy copy("fsdp/gpt2_fp32_w2");
  const auto left_out = [&] {
    return read_expected_results(copy.path(), {.dtype = DType::kF32, .all_variants = true})
        .left_out;
  };
  CHECK(left_out().empty());
  copy.set("reference.json", "/variants/ddp/options/strategy", "ddp9");
  REQUIRE(left_out().size() == 1);
  CHECK(contains(left_out()[0], "variant ddp: not compared: run.strategy = \"ddp9\""));
}

}  // namespace
}  // namespace fsdp::tools
