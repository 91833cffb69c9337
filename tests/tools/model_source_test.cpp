// Models with and without an adapter as sources of weights, and the folder of their sum.
#include "tools/runtime/model_source.h"

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;
using test::contains;

const fs::path kAdapter = test::fixture_path("models/lora_gpt2");

std::vector<double> read(const SafetensorsFile& file, const std::string& name) {
  std::vector<double> values(static_cast<size_t>(file.entry(name).numel));
  file.read_elements(name, 0, file.entry(name).numel, DType::kF64, values.data());
  return values;
}

TEST_CASE("model source: an adapter's folder leads to its base") {
  const ModelSource source = find_model(kAdapter);
  CHECK(source.adapter == kAdapter);
  CHECK(source.folder == kAdapter / "base");
  CHECK(source.config().hidden == 24);
  CHECK(source.default_tokenizer() == "bytes");
  CHECK(find_model(kAdapter, "elsewhere").folder == "elsewhere");
  const ModelSource plain = find_model(kAdapter / "base");
  CHECK(plain.adapter.empty());
  CHECK(contains(test::error_of([] { find_model(kAdapter / "base", "elsewhere"); }),
                 "no adapter_config.json"));
}

TEST_CASE(
    "model source: the merged folder has PEFT's sum where there is an adapter, else the base") {
  const test::TempFolder folder;
  const fs::path out = folder / "merged";
  write_model(find_model(kAdapter), out, std::nullopt);
  const auto reference = SafetensorsFile::open(kAdapter / "reference.safetensors");
  const auto base = SafetensorsFile::open(kAdapter / "base" / "model.safetensors");
  const auto merged = SafetensorsFile::open(out / "model.safetensors");
  CHECK(merged.entries().size() == base.entries().size());
  const std::string known = "transformer.h.0.attn.c_attn.weight";
  const std::vector<double> got = read(merged, known), sum = read(reference, "merged." + known);
  for (size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i] == static_cast<double>(static_cast<float>(sum[i])));
  }
  for (const auto& [name, entry] : base.entries()) {
    CAPTURE(name);
    CHECK(merged.entry(name).dtype_name == "F32");
    const bool adapted = contains(name, "c_attn.weight");
    CHECK((read(merged, name) == read(base, name)) == !adapted);
  }
  CHECK(read_file(out / "generation_config.json") ==
        read_file(kAdapter / "base" / "generation_config.json"));
  CHECK(contains(read_file(out / "config.json"), "\"dtype\": \"float32\""));
  CHECK(contains(test::error_of([&] { write_model(find_model(kAdapter), out, std::nullopt); }),
                 "merged: is there already"));
}

TEST_CASE("model source: in another dtype") {
  const test::TempFolder folder;
  const fs::path out = folder / "merged";
  write_model(find_model(kAdapter), out, DType::kBF16);
  const auto merged = SafetensorsFile::open(out / "model.safetensors");
  CHECK(merged.entry("transformer.wte.weight").dtype_name == "BF16");
  CHECK(contains(read_file(out / "config.json"), "\"dtype\": \"bfloat16\""));
}

TEST_CASE(
    "model source: end tokens are generation_config.json's, or config.json's, one or several") {
  const test::TempFolder folder;
  const auto end_tokens = [&] { return ModelSource{folder.path(), ""}.end_tokens(); };
  using Ids = std::vector<int64_t>;
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
            ": eos_token_id: expected an integer or a list of them, got \"</s>\"");
}

}  // namespace
}  // namespace fsdp::tools
