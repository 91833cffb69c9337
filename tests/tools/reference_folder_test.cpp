// Dealing rows, and reading reference folders: what is read, what is refused and in which words.
#include "tools/runtime/reference_folder.h"

#include <cmath>
#include <filesystem>

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;
using test::fixture_path;
using test::TempFolder;

// A copy of a fixture that a test may spoil.
class Copy {
 public:
  explicit Copy(const char* fixture) {
    for (const auto& file : fs::directory_iterator(fixture_path(fixture))) {
      fs::copy_file(file.path(), path() / file.path().filename());
    }
  }
  const fs::path& path() const { return folder_.path(); }
  // Replaces a value of a JSON file, by pointer.
  void set(const char* file, const char* pointer, const Json& value) const {
    Json json = read_json_file(path() / file);
    json[Json::json_pointer(pointer)] = value;
    folder_.write(file, json.dump());
  }
  std::string error(DType dtype = DType::kF32, bool trajectory = true) const {
    return error_of([&] { read_reference(path(), dtype, trajectory); });
  }
  std::string unsupported() const {
    try {
      read_reference(path(), DType::kF32, true);
    } catch (const Unsupported& error) {
      return error.what();
    }
    return "";
  }

 private:
  TempFolder folder_;
};

TEST_CASE("rows are dealt in order, each once, as evenly as possible") {
  for (int64_t rows : {0, 1, 2, 3, 5, 7, 12}) {
    for (int ranks : {1, 2, 3, 4, 7}) {
      int64_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const RowRange range = deal_rows(rows, rank, ranks);
        CHECK(range.first == next);
        CHECK(range.count >= rows / ranks);
        CHECK(range.count <= (rows + ranks - 1) / ranks);
        next += range.count;
      }
      CHECK(next == rows);
    }
  }
}

TEST_CASE("a part of a batch keeps its rows, samples and the global label count") {
  const GlobalBatch batch = {.rows = 3,
                             .length = 2,
                             .tokens = {1, 2, 3, 4, 5, 6},
                             .labels = {1, 2, 3, -100, -100, 6},
                             .first_sample = 10};
  CHECK(batch.label_tokens() == 2);  // labels at position 0 have nothing that predicts them
  const Batch part = part_of(batch, {.first = 1, .count = 2});
  CHECK(part.rows == 2);
  CHECK(part.length == 2);
  CHECK(part.tokens == std::vector<int32_t>{3, 4, 5, 6});
  CHECK(part.labels == std::vector<int32_t>{3, -100, -100, 6});
  CHECK(part.samples == std::vector<int64_t>{11, 12});
  CHECK(part.global_label_tokens == 2);
  const Batch none = part_of(batch, {.first = 3, .count = 0});
  CHECK(none.rows == 0);
  CHECK(none.length == 2);
  CHECK(none.tokens.empty());
  CHECK(none.global_label_tokens == 2);
}

TEST_CASE("layout model: batch, limits by dtype, trajectory") {
  const fs::path folder = fixture_path("models/gpt2");
  const Reference f64 = read_reference(folder, DType::kF64, true);
  CHECK(f64.layout == "model");
  REQUIRE(f64.pass);
  CHECK(f64.pass->batch.rows == 2);
  CHECK(f64.pass->batch.length == 11);
  CHECK(f64.pass->batch.label_tokens() == 13);  // label_tokens of reference.json
  CHECK(f64.pass->loss == 5.313604309170908);
  CHECK(*f64.pass->loss_limit == 1e-13);
  CHECK(*f64.pass->logits_limit == 1e-12);
  CHECK(*f64.pass->gradients_limit == 1e-11);
  REQUIRE(f64.trajectories.size() == 1);
  const ReferenceTrajectory& run = f64.trajectories[0];
  CHECK(run.steps.size() == 20);
  CHECK(run.steps[19].learning_rate == doctest::Approx(0.0003).epsilon(1e-12));
  CHECK(run.steps[19].batch.first_sample == 38);
  CHECK(*run.parameter_limit == 1e-10);
  CHECK(run.final_parameters->names().size() == f64.pass->gradients->names().size());
  CHECK(f64.longest_sequence() == 11);

  const Reference f32 = read_reference(folder, DType::kF32, false);
  CHECK(f32.trajectories.empty());
  CHECK(*f32.pass->gradients_limit == 5e-5);
  const Reference bf16 = read_reference(folder, DType::kBF16, true);
  CHECK(*bf16.pass->logits_limit == doctest::Approx(2 * 0.018037458786832626));
  CHECK(bf16.pass->loss_limit_is_absolute);
  CHECK(!bf16.pass->gradients_limit);
  CHECK(!bf16.trajectories[0].parameter_limit);
}

TEST_CASE("one tolerance sets all limits but that of the key biases") {
  Reference reference = read_reference(fixture_path("models/gpt2"), DType::kF32, true);
  reference.set_all_limits(0.25);
  CHECK(*reference.pass->loss_limit == 0.25);
  CHECK(*reference.pass->logits_limit == 0.25);
  CHECK(*reference.pass->gradients_limit == 0.25);
  CHECK(*reference.trajectories[0].loss_limit == 0.25);
  CHECK(*reference.trajectories[0].grad_norm_limit == 0.25);
  CHECK(*reference.trajectories[0].parameter_limit == 0.25);
  CHECK(*reference.trajectories[0].key_bias_limit == 0.05);
}

TEST_CASE("layout run: rows of all ranks in order, tolerance of the case, f64 variant") {
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
    const Copy copy("fsdp/gpt2_fp32_w3");
    copy.set("reference.json", c.pointer, c.value);
    CHECK_MESSAGE(contains(copy.unsupported(), c.named), copy.unsupported());
    CHECK(contains(copy.unsupported(), "not supported by this build"));
  }
}

TEST_CASE("a variant with final parameters of its own is compared where the main run cannot be") {
  const Copy copy("fsdp/gpt2_fp32_w3");
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

TEST_CASE("families, adapters and descriptions that are not known") {
  const Copy family("models/gpt2");
  family.set("config.json", "/model_type", "bloom");
  CHECK(contains(family.unsupported(), "config.json: model family: this build knows"));
  const Copy adapter("models/gpt2");
  fs::copy_file(adapter.path() / "config.json", adapter.path() / "adapter_config.json");
  CHECK(contains(adapter.unsupported(), "LoRA adapters are not supported"));
  const Copy prose("models/gpt2");
  prose.set("reference.json", "/trajectory/optimizer", "SGD");
  CHECK(contains(prose.unsupported(), "reference.json: trajectory.optimizer: expected \"torch."));
}

TEST_CASE("missing and misshapen things are named with their file") {
  CHECK(contains(error_of([] { read_reference("/nowhere", DType::kF32, false); }),
                 "/nowhere: no such folder"));
  for (const char* file :
       {"config.json", "reference.json", "reference.safetensors", "trajectory.safetensors"}) {
    const Copy copy("models/llama_linear_tied");
    fs::remove(copy.path() / file);
    CHECK_MESSAGE(contains(copy.error(), file), copy.error());
  }
  const Copy key("models/llama_linear_tied");
  key.set("reference.json", "/trajectory/steps/4", Json{{"lr", 1e-3}, {"loss_f64", 1.0}});
  CHECK_MESSAGE(contains(key.error(), "reference.json: trajectory.steps[4].grad_norm_f64: missing"),
                key.error());
  const Copy number("models/llama_linear_tied");
  number.set("reference.json", "/loss_f64", "five");
  CHECK(contains(number.error(), "reference.json: loss_f64: expected a number, got \"five\""));

  const Reference reference =
      read_reference(fixture_path("models/llama_linear_tied"), DType::kF32, false);
  CHECK(contains(error_of([&] { reference.pass->gradients->read("model.norm.weight", {7}); }),
                 "reference.safetensors: tensor \"grad.model.norm.weight\": expected (7), got ("));
  CHECK(contains(error_of([&] { reference.pass->gradients->read("nothing", {7}); }),
                 "reference.safetensors: no tensor \"grad.nothing\""));
}

TEST_CASE("key biases: only where scores do not depend on the key's position") {
  const models::ModelConfig gpt2 =
      read_reference(fixture_path("models/gpt2_5heads"), DType::kF32, false).config;
  const ElementRange range = key_bias(gpt2, "blocks.1.attention.qkv.bias");
  CHECK(range.first == 40);
  CHECK(range.end == 80);
  CHECK(key_bias(gpt2, "blocks.1.attention.qkv.weight").end == 0);
  CHECK(key_bias(gpt2, "blocks.1.attention.out.bias").end == 0);
  const models::ModelConfig llama =
      read_reference(fixture_path("models/llama_linear_tied"), DType::kF32, false).config;
  CHECK(key_bias(llama, "blocks.1.attention.k.bias").end == 0);
}

}  // namespace
}  // namespace fsdp::tools
