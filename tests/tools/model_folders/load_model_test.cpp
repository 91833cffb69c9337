// Models with and without an adapter: where their parts lie, and what their files say.
// Requirements: S0.10.
#include "tools/model_folders/load_model.h"

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "core/io/safetensors.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tied_copy.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;
using test::contains;

const fs::path kAdapter = test::fixture_path("models/lora_gpt2");

TEST_CASE("model source: an adapter's folder leads to its base") {
  const ModelSource source = find_model(kAdapter);
  CHECK(source.adapter == kAdapter);
  CHECK(source.folder == kAdapter / "base");
  CHECK(source.config().hidden == 24);
  CHECK(source.default_tokenizer() == "bytes");
  CHECK(find_model(kAdapter, kAdapter.parent_path()).folder == kAdapter.parent_path());
  const ModelSource plain = find_model(kAdapter / "base");
  CHECK(plain.adapter.empty());
  CHECK(contains(test::error_of([] { find_model(kAdapter / "base", "elsewhere"); }),
                 "no adapter_config.json"));
}

TEST_CASE("model source: tokens that end a text, and choices of tokens that nothing here makes") {
  const test::TempFolder folder;
  const ModelSource source = {folder.path(), ""};
  folder.write("config.json", R"({"model_type": "llama"})");
  CHECK(source.end_tokens() == std::vector<int64_t>{2});  // transformers' default
  CHECK(source.unused_choices() == "");
  folder.write("config.json", R"({"model_type": "llama", "eos_token_id": null, "min_new_tokens": 1,
                                  "temperature": 1.0, "forced_bos_token_id": 0})");
  CHECK(source.end_tokens() == std::vector<int64_t>{});
  CHECK(source.unused_choices() == "config.json: forced_bos_token_id, min_new_tokens");
  folder.write("generation_config.json",
               R"({"do_sample": true, "eos_token_id": [5, 6], "max_length": 99, "num_beams": 1,
                   "repetition_penalty": 1.0, "top_p": 0.9, "use_cache": false})");
  CHECK(source.end_tokens() == std::vector<int64_t>{5, 6});
  CHECK(source.unused_choices() == "generation_config.json: do_sample, max_length, top_p");
}

TEST_CASE("model source: what generation's files say and generate does not do") {
  const test::TempFolder folder;
  const ModelSource source = {folder.path(), ""};
  folder.write("config.json", R"({"model_type": "llama", "vocab_size": 9, "eos_token_id": 8})");
  CHECK(source.notes_on_generation().empty());
  folder.write("config.json",
               R"({"model_type": "llama", "vocab_size": 9, "eos_token_id": [8, 9, -1]})");
  const std::string config = (folder / "config.json").string();
  CHECK(source.notes_on_generation() ==
        std::vector<std::string>{
            config + ": eos_token_id: 9: ends no text: the model's tokens are 0 to 8",
            config + ": eos_token_id: -1: ends no text: the model's tokens are 0 to 8"});
  folder.write("generation_config.json",
               R"({"eos_token_id": 70, "max_new_tokens": 5, "max_length": 20, "max_tokens": 1})");
  const std::string own = (folder / "generation_config.json").string();
  CHECK(source.notes_on_generation() ==
        std::vector<std::string>{
            "generation_config.json: max_new_tokens: not used: options of this command say how "
            "tokens are chosen, and how many",
            own + ": max_tokens: unknown key: not used",
            own + ": eos_token_id: 70: ends no text: the model's tokens are 0 to 8"});
}

TEST_CASE("model source: what is no folder, and a preset, which has no weights") {
  const auto error = [](const char* name) { return test::error_of([&] { find_model(name); }); };
  CHECK(error("gpt2-124m") ==
        "gpt2-124m: expected a model's folder: this is a preset, which has sizes but no weights; a "
        "folder holds config.json and model.safetensors");
  CHECK(error("gpt2") ==
        "gpt2: no such folder; the nearest preset is gpt2-124m (gpt2 on the hub), "
        "which has no weights");
  CHECK(test::contains(error("org/name"), "org/name: no such folder; of a model on"));
  CHECK(test::contains(error("org/name"), "\n  hf download org/name "));
  CHECK(error("gpt2-12m") ==
        "gpt2-12m: no such folder; the nearest preset is gpt2-124m, which has no weights");
  CHECK(error("/no/such") == "/no/such: no such folder");
  const test::TempFolder folder;
  const std::string file = folder.write("a.txt", "").string();
  CHECK(error(file.c_str()) == file + ": expected a model's folder, got a file");
}

TEST_CASE("model source: the dtype of most bytes, buffers, masks and whole numbers aside") {
  CHECK(dtype_of_weights(kAdapter / "base") == DType::kF32);
  const auto dtype_with = [](const std::vector<SafetensorsSpec>& tensors) {
    const test::TempFolder folder;
    folder.write("config.json", R"({"model_type": "llama"})");
    SafetensorsWriter writer(folder / "model.safetensors", tensors);
    for (const SafetensorsSpec& tensor : tensors) {
      const size_t bytes = static_cast<size_t>(tensor.shape[0]) * size_of(tensor.dtype);
      writer.write(tensor.name, std::vector<std::byte>(bytes).data(), bytes);
    }
    writer.finish();
    return dtype_of_weights(folder.path());
  };
  const SafetensorsSpec buffer = {"model.layers.0.self_attn.rotary_emb.inv_freq", DType::kF32, {9}};
  CHECK(dtype_with({{"a", DType::kBF16, {1}}, {"b", DType::kBF16, {1}}, buffer}) == DType::kBF16);
  CHECK(dtype_with({{"a", DType::kF16, {5}}, {"b", DType::kF32, {2}}, buffer}) == DType::kF16);
  CHECK(dtype_with({{"a", DType::kF16, {5}}, {"b", DType::kF32, {3}}}) == DType::kF32);
  CHECK(dtype_with({{"a", DType::kI32, {9}}, {"b", DType::kF64, {1}}}) == DType::kF64);
  CHECK(dtype_with({{"mask", DType::kI64, {3}}, buffer}) == std::nullopt);
}

TEST_CASE("model source: ranks compare the copy of a tied head together, and refuse it together") {
  const test::TempFolder scratch;
  const auto error_of_last = [&](const fs::path& folder) {
    std::string error;
    comm::run_local_ranks(3, [&](comm::Communicator& world) {
      Session session =
          place_session(world, {{.model = ModelSource{folder, ""}.config(), .max_length = 4}});
      try {
        load_model(session, {folder, ""}, [](const std::string&) {});
      } catch (const AgreedError& agreed) {
        if (world.rank() == 2) error = agreed.what();
      }
    });
    return error;
  };
  constexpr size_t kElements = size_t{97} * 24;
  test::write_with_tied_copy(scratch / "copy", {});
  CHECK(error_of_last(scratch / "copy") == "");
  for (const size_t part : {0, 1, 2}) {
    const fs::path folder = scratch / std::to_string(part);
    test::write_with_tied_copy(folder, kElements * part / 3);
    const std::string error = error_of_last(folder);
    CHECK(error.starts_with("rank " + std::to_string(part)));  // which compared it
    CHECK(contains(error, "tied: lm_head.weight: expected absent or equal"));
  }
}

TEST_CASE("model source: what is seen of a text that grows") {
  models::ModelConfig config = models::family_defaults("gpt2");
  config.max_positions = 32;
  CHECK(seen_tokens(config, 3, 4) == 7);
  CHECK(seen_tokens(config, 3, 40) == 32);
  config.positions = models::PositionKind::kAlibi;  // nothing bounds them
  CHECK(seen_tokens(config, 3, 4) == 7);
  CHECK(seen_tokens(config, 3, int64_t{1} << 40) == 32);
  CHECK(seen_tokens(config, 40, 0) == 40);
  CHECK(seen_tokens(config, 40, int64_t{1} << 40) == 40);
}

TEST_CASE(
    "model source: end tokens are generation_config.json's, or config.json's, one or several") {
  const test::TempFolder folder;
  const auto end_tokens = [&] { return ModelSource{folder.path(), ""}.end_tokens(); };
  using Ids = std::vector<int64_t>;
  folder.write("config.json", R"({"eos_token_id": null})");
  CHECK(end_tokens().empty());
  folder.write("config.json", R"({"eos_token_id": 7})");
  CHECK(end_tokens() == Ids{7});
  folder.write("config.json", R"({"eos_token_id": [7, 8]})");
  CHECK(end_tokens() == Ids{7, 8});
  folder.write("generation_config.json", R"({"bos_token_id": 1})");
  CHECK(end_tokens() == Ids{7, 8});
  folder.write("generation_config.json", R"({"eos_token_id": [9, 7]})");
  CHECK(end_tokens() == Ids{9, 7});
  folder.write("generation_config.json", R"({"eos_token_id": null})");
  CHECK(end_tokens() == Ids{7, 8});
  folder.write("generation_config.json", R"({"eos_token_id": "</s>"})");
  CHECK(test::error_of(end_tokens) ==
        (folder / "generation_config.json").string() +
            ": eos_token_id: expected token ids of at most 32 bits, one or a list, got \"</s>\"");
}

TEST_CASE("model source: a generation_config.json that is no JSON is as if it were not there") {
  const test::TempFolder folder;
  const ModelSource source = {folder.path(), ""};
  folder.write("config.json", R"({"model_type": "llama", "vocab_size": 9, "eos_token_id": 8})");
  const std::string file = (folder / "generation_config.json").string();
  for (const char* broken : {"", "{\"eos_token_id\": 5", "[]"}) {
    folder.write("generation_config.json", broken);
    CHECK(source.end_tokens() == std::vector<int64_t>{8});
    CHECK(source.unused_choices() == "");
    CHECK(source.notes_on_generation().empty());
    CHECK(read_generation_config(folder.path()).problem.starts_with(file));
  }
}

}  // namespace
}  // namespace fsdp::tools
