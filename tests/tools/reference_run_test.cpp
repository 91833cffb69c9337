// The layout "run" of reference folders: which runs are compared, and what is refused by name.
#include <cmath>
#include <filesystem>

#include <doctest/doctest.h>

#include "tests/support/reference_copy.h"
#include "tools/runtime/reference_folder.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::fixture_path;
using test::ReferenceCopy;

TEST_CASE("rows of all ranks in order, tolerance of the case, f64 variant") {
  const fs::path folder = fixture_path("fsdp/gpt2_fp32_w2");
  const Reference f32 = read_reference(folder, DType::kF32, false);
  CHECK(f32.layout == "run");
  REQUIRE(f32.trajectories.size() == 1);  // the other variants repeat the main run
  CHECK(f32.trajectories[0].variant == "");
  CHECK(f32.trajectories[0].steps.size() == 20);
  CHECK(f32.trajectories[0].steps[0].batch.rows == 8);
  CHECK(f32.trajectories[0].steps[0].learning_rate == 0.003);
  CHECK(*f32.trajectories[0].grad_norm_limit == 5e-6);
  CHECK(*f32.trajectories[0].parameter_rms_limit == 1e-6);
  CHECK(f32.pass->gradient_norms.size() == 40);
  const Reference f64 = read_reference(folder, DType::kF64, false);
  REQUIRE(f64.trajectories.size() == 1);
  CHECK(f64.trajectories[0].variant == "f64");
  CHECK(*f64.trajectories[0].parameter_limit == 1e-12);
  CHECK(!f64.pass);
  const Reference without_final =
      read_reference(fixture_path("fsdp/gpt2_fp32_w3"), DType::kF64, false);
  CHECK(!without_final.trajectories[0].final_parameters);
  REQUIRE(without_final.notes.size() == 1);
  CHECK(contains(without_final.notes[0], "final_f64.safetensors is not there"));
}

TEST_CASE("options of a run that cannot be repeated are refused by name, unknown ones too") {
  const struct {
    const char* pointer;
    Json value;
    const char* named;
  } cases[] = {
      {"/run/accum", 3, "run.accum = 3"},
      {"/run/param_dtype", "bf16", "run.param_dtype = \"bf16\""},
      {"/run/freeze", Json::array({"transformer.wte.weight"}), "run.freeze"},
      {"/run/skip", Json{{"block", 1}}, "run.skip"},
      {"/run/scaler", Json{{"init_scale", 4096.0}}, "run.scaler"},
      {"/run/strategy", "fsdp2_hybrid", "run.strategy = \"fsdp2_hybrid\""},
      {"/run/labels", "ragged", "mean of the ranks' means"},
      {"/run/lr_schedule", "cosine", "run.lr_schedule = \"cosine\""},
      {"/run/something_new", true, "run.something_new"},
  };
  for (const auto& c : cases) {
    const ReferenceCopy copy("fsdp/gpt2_fp32_w3");
    copy.set("reference.json", c.pointer, c.value);
    CHECK_MESSAGE(contains(copy.unsupported(), c.named), copy.unsupported());
    CHECK(contains(copy.unsupported(), "not supported by this build"));
  }
}

TEST_CASE("a variant with final parameters of its own is compared where the main run cannot be") {
  const ReferenceCopy copy("fsdp/gpt2_fp32_w3");
  copy.set("reference.json", "/run/labels", "ragged");
  const Json main = read_json_file(copy.path() / "reference.json");
  copy.set(
      "reference.json", "/variants/token",
      Json{
          {"note", ""}, {"options", {{"normalise", "token"}}}, {"trajectory", main["trajectory"]}});
  fs::copy_file(copy.path() / "final.safetensors", copy.path() / "final_token.safetensors");
  const Reference reference = read_reference(copy.path(), DType::kF32, false);
  REQUIRE(reference.trajectories.size() == 1);
  CHECK(reference.trajectories[0].variant == "token");
  CHECK(!reference.pass);
  REQUIRE(reference.notes.size() == 1);
  CHECK(contains(reference.notes[0], "main run: not compared: run.normalise"));
}

TEST_CASE("clipping by the infinity norm has the limit of single gradients, and says so") {
  const ReferenceCopy copy("fsdp/gpt2_fp32_w3");
  copy.set("reference.json", "/run/clip", Json{{"max_norm", 0.1}, {"norm_type", "inf"}});
  const Reference reference = read_reference(copy.path(), DType::kF32, false);
  CHECK(std::isinf(reference.trajectories[0].clip_power));
  CHECK(*reference.trajectories[0].grad_norm_limit == 5e-5);
  CHECK(contains(reference.notes[0], "the infinity norm is one gradient element"));
}

}  // namespace
}  // namespace fsdp::tools
