// The layout "model": what is read, what is refused and in which words.
#include "tools/verify/expected_results.h"

#include <filesystem>

#include <doctest/doctest.h>

#include "tests/support/reference_copy.h"
#include "tools/verify/expected_results_json.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;
using test::fixture_path;
using test::ReferenceCopy;

TEST_CASE("layout model: batch, limits by dtype, trajectory") {
  const fs::path folder = fixture_path("models/gpt2");
  const ExpectedResults f64 =
      read_expected_results(folder, {.dtype = DType::kF64, .trajectory = true});
  CHECK(f64.layout == "model");
  REQUIRE(f64.pass);
  CHECK(f64.pass->batch.rows == 2);
  CHECK(f64.pass->batch.length == 11);
  CHECK(f64.pass->batch.global_label_tokens == 13);  // label_tokens of reference.json
  CHECK(f64.pass->loss == 5.313604309170908);
  CHECK(*f64.pass->loss_limit == 1e-13);
  CHECK(*f64.pass->logits_limit == 1e-12);
  CHECK(*f64.pass->gradients_limit == 1e-11);
  CHECK(f64.pass->gradients->largest() == 0.7929980445604229);
  REQUIRE(f64.trajectories.size() == 1);
  const ExpectedTraining& run = f64.trajectories[0];
  CHECK(run.steps.size() == 20);
  CHECK(run.steps[19].learning_rate == doctest::Approx(0.0003).epsilon(1e-12));
  CHECK(run.steps[19].batch.samples == std::vector<int64_t>{38, 39});
  CHECK(*run.parameter_limit == 1e-10);
  CHECK(run.final_parameters->names().size() == f64.pass->gradients->names().size());
  CHECK(f64.longest_sequence() == 19);  // 7 tokens of a prompt and 12 new ones

  const ExpectedResults f32 = read_expected_results(folder, {.dtype = DType::kF32});
  CHECK(f32.trajectories.empty());
  CHECK(*f32.pass->gradients_limit == 5e-5);
  const ExpectedResults bf16 =
      read_expected_results(folder, {.dtype = DType::kBF16, .trajectory = true});
  CHECK(*bf16.pass->logits_limit == doctest::Approx(2 * 0.018037458786832626));
  CHECK(bf16.pass->loss_limit_is_absolute);
  CHECK(!bf16.pass->gradients_limit);
  CHECK(!bf16.trajectories[0].parameter_limit);
  const ExpectedResults adapter =
      read_expected_results(fixture_path("models/lora_gpt2"), {.dtype = DType::kBF16});
  CHECK(*adapter.pass->loss_limit == 0.03);
  CHECK(!adapter.pass->logits_limit);  // it states none
  const ExpectedResults f16 =
      read_expected_results(folder, {.dtype = DType::kF16, .trajectory = true});
  CHECK(!f16.pass->loss_limit);
  CHECK(!f16.pass->logits_limit);
  CHECK(!f16.pass->gradients_limit);
  CHECK(!f16.trajectories[0].loss_limit);
  CHECK(!f16.trajectories[0].parameter_limit);
  CHECK(contains(f16.notes.at(0), "not judged"));
}

TEST_CASE("one tolerance sets all limits but that of the key biases") {
  ExpectedResults expected = read_expected_results(fixture_path("models/gpt2"),
                                                   {.dtype = DType::kF32, .trajectory = true});
  expected.set_all_limits(0.25);
  CHECK(*expected.pass->loss_limit == 0.25);
  CHECK(*expected.pass->logits_limit == 0.25);
  CHECK(*expected.pass->gradients_limit == 0.25);
  CHECK(*expected.trajectories[0].loss_limit == 0.25);
  CHECK(*expected.trajectories[0].grad_norm_limit == 0.25);
  CHECK(*expected.trajectories[0].parameter_limit == 0.25);
  CHECK(*expected.trajectories[0].key_bias_limit == 0.05);
}

TEST_CASE("the folder of an adapter leads to its base; the reference is the adapter's alone") {
  const fs::path folder = fixture_path("models/lora_gpt2");
  const ExpectedResults expected =
      read_expected_results(folder, {.dtype = DType::kF64, .trajectory = true});
  REQUIRE(expected.lora);
  CHECK(expected.lora->r == 4);
  CHECK(expected.model_folder == folder / "base");
  CHECK(expected.config.hidden == 24);
  CHECK(expected.pass->gradients->names().size() == 4);
  CHECK(expected.pass->merged->names() ==
        std::vector<std::string>{"transformer.h.0.attn.c_attn.weight"});
  CHECK(*expected.pass->merged_limit == 1e-12);
  CHECK(expected.trajectories[0].steps.size() == 10);
  const ExpectedResults plain =
      read_expected_results(fixture_path("models/gpt2"), {.dtype = DType::kF64});
  CHECK(!plain.lora);
  CHECK(plain.model_folder == plain.folder);
  CHECK(!plain.pass->merged);
}

TEST_CASE("families, adapters and descriptions that are not known") {
  const ReferenceCopy family("models/gpt2");
  family.set("config.json", "/model_type", "t5");
  CHECK(contains(family.unsupported(), "config.json: model family: expected one of"));
  const ReferenceCopy adapter("models/gpt2");
  fs::copy_file(adapter.path() / "config.json", adapter.path() / "adapter_config.json");
  CHECK(contains(adapter.error(), "adapter_config.json: "));
  CHECK(contains(adapter.error(), "peft_type: missing"));
  const ReferenceCopy prose("models/gpt2");
  prose.set("reference.json", "/trajectory/optimizer", "SGD");
  CHECK(contains(prose.unsupported(), "reference.json: trajectory.optimizer: expected \"torch."));
}

TEST_CASE("missing and misshapen things are named with their file") {
  CHECK(contains(error_of([] { read_expected_results("/nowhere", {.dtype = DType::kF32}); }),
                 "/nowhere: no such folder"));
  for (const char* file :
       {"config.json", "reference.json", "reference.safetensors", "trajectory.safetensors"}) {
    const ReferenceCopy copy("models/gpt2");
    fs::remove(copy.path() / file);
    CHECK_MESSAGE(contains(copy.error(), file), copy.error());
  }
  const ReferenceCopy untrained("models/gpt2");
  fs::remove(untrained.path() / "trajectory.safetensors");
  CHECK(contains(untrained.error(), "the folder has no training run; without --trajectory"));
  const ReferenceCopy key("models/gpt2");
  key.set("reference.json", "/trajectory/steps/4", Json{{"lr", 1e-3}, {"loss_f64", 1.0}});
  CHECK_MESSAGE(contains(key.error(), "reference.json: trajectory.steps[4].grad_norm_f64: missing"),
                key.error());
  const ReferenceCopy number("models/gpt2");
  number.set("reference.json", "/loss_f64", "five");
  CHECK(contains(number.error(), "reference.json: loss_f64: expected a number, got \"five\""));

  const ExpectedResults expected =
      read_expected_results(fixture_path("models/llama_linear_tied"), {.dtype = DType::kF32});
  CHECK(contains(error_of([&] { expected.pass->gradients->read("model.norm.weight", {7}); }),
                 "reference.safetensors: tensor \"grad.model.norm.weight\": expected (7), got ("));
  CHECK(contains(error_of([&] { expected.pass->gradients->read("nothing", {7}); }),
                 "reference.safetensors: no tensor \"grad.nothing\""));
}

TEST_CASE("a key of config.json that nothing is computed from is a note") {
  const ReferenceCopy copy("models/gpt2");
  const auto notes = [&] {
    return read_expected_results(copy.path(), {.dtype = DType::kF32}).notes;
  };
  CHECK(notes().empty());
  copy.set("config.json", "/logit_scale", 2);
  CHECK(notes() ==
        std::vector<std::string>{(copy.path() / "config.json").string() +
                                 ": logit_scale: unknown key: nothing is computed from it"});
}

TEST_CASE("key biases: only where channels are not rotated, in every layout of q, k and v") {
  const models::ModelConfig gpt2 =
      read_expected_results(fixture_path("models/gpt2_5heads"), {.dtype = DType::kF32}).config;
  using Ranges = std::vector<std::pair<int64_t, int64_t>>;
  const auto ranges = [](const models::ModelConfig& config, const std::string& parameter) {
    Ranges out;
    for (const ElementRange& range : key_bias(config, parameter)) {
      out.emplace_back(range.first, range.end);
    }
    return out;
  };
  const std::string packed = "blocks.1.attention.qkv.bias";
  CHECK(ranges(gpt2, packed) == Ranges{{40, 48}, {48, 56}, {56, 64}, {64, 72}, {72, 80}});
  CHECK(ranges(gpt2, "blocks.1.attention.qkv.weight").empty());
  CHECK(ranges(gpt2, "blocks.1.attention.out.bias").empty());
  models::ModelConfig by_head = gpt2;
  by_head.packed_by_head = true;
  by_head.heads = by_head.kv_heads = 2;
  CHECK(ranges(by_head, packed) == Ranges{{8, 16}, {32, 40}});
  by_head.positions = models::PositionKind::kRope;
  by_head.rope.fraction = 0.25;
  CHECK(ranges(by_head, packed) == Ranges{{10, 16}, {34, 40}});
  by_head.packed_qkv = by_head.packed_by_head = false;
  CHECK(ranges(by_head, "blocks.1.attention.k.bias") == Ranges{{2, 8}, {10, 16}});
  const models::ModelConfig llama =
      read_expected_results(fixture_path("models/llama_linear_tied"), {.dtype = DType::kF32})
          .config;
  CHECK(ranges(llama, "blocks.1.attention.k.bias").empty());
}

using Ids = std::vector<int32_t>;
using Integers = std::map<std::string, Ids>;

// Two rows of eight. Every token but the last three of the first row is a label. The
// tensors' names begin with "batch.".
std::vector<Batch> batches_with(const Integers& further, bool stacked = false,
                                DType dtype = DType::kI64) {
  const test::TempFolder folder;
  Integers all = {{"input_ids", {5, 6, 7, 8, 9, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}},
                  {"labels", {5, 6, 7, 8, 9, -100, -100, -100, 1, 2, 3, 4, 5, 6, 7, 8}}};
  all.insert(further.begin(), further.end());
  std::vector<SafetensorsSpec> specs;
  for (const auto& [name, values] : all) {
    const auto columns = static_cast<int64_t>(values.size() / 2);
    specs.push_back({"batch." + name, dtype, {2, columns}});
    if (stacked) specs.back().shape = {2, 1, columns};
  }
  SafetensorsWriter writer(folder / "b", specs);
  for (const auto& [name, values] : all) {
    const std::vector<int64_t> wide(values.begin(), values.end());
    if (dtype == DType::kI64) writer.write("batch." + name, wide.data(), wide.size() * 8);
    if (dtype == DType::kI32) writer.write("batch." + name, values.data(), values.size() * 4);
  }
  writer.finish();
  return read_batches(ExpectedTensors(folder / "b", "batch."), stacked, {});
}

const Ids kOneDocument = {0, 1, 2, 3, 4, 5, 6, 7};
Ids joined(Ids first, const Ids& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

TEST_CASE("documents: position_ids or first_key; the first label of each is not counted") {
  const Ids first_key = joined({0, 0, 0, 3, 3, 5, 5, 5}, Ids(8));
  const Ids positions = joined({0, 1, 2, 0, 1, 0, 1, 2}, kOneDocument);
  for (const DType dtype : {DType::kI32, DType::kI64}) {
    for (const Integers& said :
         {Integers{{"position_ids", positions}}, Integers{{"first_key", first_key}}}) {
      const Batch batch = batches_with(said, false, dtype).front();
      CHECK(batch.first_key == first_key);
      CHECK(batch.positions == positions);
      CHECK(batch.targets[2] == -100);
      CHECK(batch.global_label_tokens == 2 + 1 + 7);
      CHECK(count_targets(batch) == 2 + 1 + 7);
    }
  }
  // Padding that a collator numbers 0 each.
  const Ids zeros = joined({0, 1, 2, 0, 1, 0, 0, 0}, kOneDocument);
  const std::vector<Batch> steps =
      batches_with({{"position_ids", zeros}, {"attention_mask", Ids(16, 1)}}, true);
  CHECK(steps[0].first_key == Ids{0, 0, 0, 3, 3, 5, 6, 7});
  CHECK(steps[0].mask.empty());
  CHECK(steps[0].global_label_tokens == 3);
  CHECK(steps[1].global_label_tokens == 7);
}

TEST_CASE("documents: rows of one document each have no first_key, and may be padded") {
  Ids mask(16, 1);
  mask[7] = 0;
  const Batch batch =
      batches_with({{"position_ids", joined(kOneDocument, kOneDocument)}, {"attention_mask", mask}})
          .front();
  CHECK(batch.first_key.empty());
  CHECK(batch.positions.empty());
  CHECK(batch.mask == mask);
  CHECK(batch.global_label_tokens == 4 + 7);
}

TEST_CASE("documents: what is wrong is named with file, tensor, row and column") {
  const auto check = [](const Integers& further, const std::string& part) {
    const std::string message = error_of([&] { batches_with(further); });
    CHECK_MESSAGE(contains(message, "/b: " + part), message);
  };
  const auto positions = [&](const Ids& row, const std::string& part) {
    check({{"position_ids", joined(kOneDocument, row)}},
          "tensor \"batch.position_ids\": row 1, column " + part);
  };
  positions({1, 2, 3, 4, 5, 6, 7, 8}, "0: expected 0, where a document begins, got 1");
  positions({0, 1, 2, 4, 5, 6, 7, 8},
            "3: expected 0, where a document begins, or 3, where it continues, got 4");
  positions({0, 1, 1, 2, 3, 4, 5, 6},
            "2: expected 0, where a document begins, or 2, where it continues, got 1");
  positions({0, 1, 0, -2147483647 - 1, 0, 1, 2, 3}, "3: expected 0, where a document begins, or 1");
  check({{"position_ids", Ids(14)}}, "tensor \"batch.position_ids\": expected (2, 8), got (2, 7)");
  check({{"first_key", joined(Ids(8), {0, 0, 1, 1, 1, 1, 1, 1})}},
        "[first_key] token 2 of row 1: expected 2");
  check({{"first_key", Ids(16)}, {"position_ids", Ids(16)}}, "expected first_key or position_ids");
  Ids mask(16, 1);
  mask[15] = 0;
  check({{"first_key", joined({0, 0, 0, 3, 3, 5, 5, 5}, Ids(8))}, {"attention_mask", mask}},
        "tensor \"batch.attention_mask\": row 1: expected no 0 with documents");
}

TEST_CASE("generation: prompts and new tokens, judged in f32 and f64") {
  const auto folder = test::fixture_path("models/gpt2");
  const ExpectedResults f64 = read_expected_results(folder, {.dtype = DType::kF64});
  REQUIRE(f64.generation);
  CHECK(f64.generation->prompts == std::vector<Ids>{{37, 84, 3}, {86, 91, 95, 28, 12, 86, 90}});
  CHECK(f64.generation->batched[1] == Ids{30, 69, 88, 56, 56, 12, 56, 86, 63, 78, 63, 78});
  CHECK(f64.generation->alone[0] == Ids{70, 88, 42, 43, 43, 43, 44, 43, 88, 70, 78, 63});
  CHECK(f64.generation->limit == 0);
  CHECK(f64.longest_sequence() == 7 + 12);
  CHECK_FALSE(read_expected_results(folder, {.dtype = DType::kBF16}).generation->limit);
  const ReferenceCopy without("models/gpt2");
  std::filesystem::remove(without.path() / "generation.json");
  CHECK_FALSE(read_expected_results(without.path(), {}).generation);
}

TEST_CASE("generation: mistakes are named") {
  const auto error = [](const std::string& key, const Json& value) {
    const ReferenceCopy copy("models/gpt2");
    copy.set("generation.json", key.c_str(), value);
    return copy.error();
  };
  const auto check = [&](const std::string& key, const Json& value, const std::string& part) {
    const std::string message = error(key, value);
    CHECK_MESSAGE(contains(message, "generation.json: " + part), message);
  };
  check("/prompts/0/1", 97, "prompts[0][1]: expected a token of the vocabulary of 97, got 97");
  check("/prompts/0/1", 1.5, "prompts[0][1]: expected a token");
  check("/prompts/0", Json::array(), "prompts[0]: empty");
  check("/prompts", Json::array(), "prompts: empty");
  check("/prompts/2", Json{1, 2}, "batched.new_ids: expected 3 texts, one for each prompt, got 2");
  check("/batched", Json::object(), "batched.new_ids: missing");
  check("/batched/new_ids/1", Json{1, 2}, "batched.new_ids[1]: expected 12 tokens");
  check("/alone/1/new_ids", Json{1, 2}, "alone[1].new_ids: expected 12 tokens");
  check("/alone", Json::array(), "alone: expected 2 texts, one for each prompt, got 0");
}

}  // namespace
}  // namespace fsdp::tools
