// Folders converted to shards, to other dtypes and back, adapters merged, by any number of ranks.
// Requirements: S4.14.
#include "tools/model_folders/conversion.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <map>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "core/io/json.h"
#include "core/io/shard_index.h"
#include "models/names.h"
#include "models/weights.h"
#include "tests/support/io_faults.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tied_copy.h"
#include "tools/launch/launch.h"
#include "tools/train/placed_session.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;
using test::contains;

ConversionSummary convert(const ConversionOptions& options, int ranks) {
  ConversionSummary summary;
  comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
    const ConversionSummary mine = convert_folder(world, options);
    if (world.rank() == 0) summary = mine;
  });
  return summary;
}

std::string error_on_last_rank(const ConversionOptions& options, int ranks) {
  std::string error;
  comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
    try {
      convert_folder(world, options);
    } catch (const AgreedError& agreed) {
      if (world.rank() == world.size() - 1) error = agreed.what();
    }
  });
  return error;
}

TEST_CASE("conversion: to shards and back is the same to the byte, whoever reads and writes them") {
  const test::TempFolder scratch;
  for (const auto& item : fs::directory_iterator(test::fixture_path("models"))) {
    if (fs::exists(item.path() / "base")) continue;  // an adapter
    CAPTURE(item.path().string());
    const std::string name = item.path().filename();
    const ConversionSummary there =
        convert({.from = item.path(), .to = scratch / (name + "-shards"), .shards = 3}, 2);
    CHECK(there.files == 3);
    CHECK(!fs::exists(scratch / (name + "-shards") / "model.safetensors"));
    const ConversionSummary reshaped = convert(
        {.from = scratch / (name + "-shards"), .to = scratch / (name + "-five"), .shards = 5}, 1);
    CHECK(reshaped.bytes == there.bytes);
    convert({.from = scratch / (name + "-five"), .to = scratch / name}, 3);
    for (const char* file : {"model.safetensors", "config.json"}) {
      CHECK(read_file(scratch / name / file) == read_file(item.path() / file));
    }
  }
}

TEST_CASE("conversion: shards hold what ranks own, addressed by name and element range") {
  const test::TempFolder scratch;
  const fs::path from = test::fixture_path("models") / "gpt2";
  convert({.from = from, .to = scratch / "shards", .shards = 3}, 1);
  const ShardIndex index = read_shard_index(scratch / "shards" / kShardIndexName);
  CHECK(index.files.size() == 3);
  const auto whole = SafetensorsFile::open(from / "model.safetensors");
  CHECK(index.tensors.size() == whole.entries().size());
  size_t cut = 0;
  for (const auto& [name, entry] : index.tensors) {
    CHECK(entry.shape == whole.entry(name).shape);
    cut += entry.pieces.size() > 1;
  }
  CHECK(cut >= 2);  // of the root and of every block at least one tensor lies across ranks
  // name -> first element, elements
  using Parts = std::map<std::string, std::pair<int64_t, int64_t>>;
  std::vector<Parts> listed(3), owned(3);
  for (const auto& [name, entry] : index.tensors) {
    for (const auto& piece : entry.pieces) listed[piece.file][name] = {piece.first, piece.count};
  }
  const models::ModelConfig config = models::read_config((from / "config.json").string());
  comm::run_local_ranks(3, [&](comm::Communicator& world) {
    PlacedOptions options = {{.model = config, .max_length = 8}};
    options.fsdp.strategy = comm::Strategy::kFullShard;
    Session session = place_session(world, options);
    const auto values = models::from_folder(from.string(), config, session.parameters());
    Parts& own = owned[static_cast<size_t>(world.rank())];
    session.initialise([&](const Parameter& p, int64_t first, Tensor& part) {
      own[models::hugging_face_name(config, p.name())] = {first, part.numel()};
      values(p, first, part);
    });
  });
  int64_t read = 0;  // by a rank only what it owns: together every element once
  for (size_t i = 0; i < 3; ++i) {
    CHECK(owned[i] == listed[i]);
    const auto file = SafetensorsFile::open(scratch / "shards" / index.files[i]);
    CHECK(file.entries().size() == owned[i].size());
    for (const auto& [name, part] : owned[i]) {
      CHECK(file.entry(name).numel == part.second);
      read += part.second;
    }
  }
  CHECK(read == config.parameter_count());
}

TEST_CASE("conversion: dtypes, each tensor by rounding to nearest; widening loses nothing") {
  const test::TempFolder scratch;
  const fs::path from = test::fixture_path("models") / "llama_gqa_llama3";
  const auto source = SafetensorsFile::open(from / "model.safetensors");
  const std::string norm = "model.layers.1.mlp.up_proj.weight";
  std::vector<float> values(static_cast<size_t>(source.entry(norm).numel));
  source.read_elements(norm, 0, source.entry(norm).numel, DType::kF32, values.data());
  struct Case {
    DType dtype;
    const char* name;
    int digits;  // of the significand
  };
  for (const auto& [dtype, name, digits] :
       {Case{DType::kBF16, "bfloat16", 8}, Case{DType::kF16, "float16", 11},
        Case{DType::kF64, "float64", 24}}) {
    CAPTURE(name);
    convert({.from = from, .to = scratch / name, .dtype = dtype, .shards = 0}, 2);
    CHECK(read_json_file(scratch / name / "config.json")["dtype"] == name);
    const auto out = SafetensorsFile::open(scratch / name / "model.safetensors");
    for (const auto& [tensor, entry] : out.entries()) CHECK(entry.dtype == dtype);
    std::vector<double> got(values.size());
    out.read_elements(norm, 0, static_cast<int64_t>(got.size()), DType::kF64, got.data());
    double worst = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      worst = std::max(worst, std::abs(got[i] - double{values[i]}) / std::abs(double{values[i]}));
    }
    CHECK(worst <= std::ldexp(1.0, -digits));
    CHECK((digits == 24) == (worst == 0));
    const std::string back = std::string(name) + "-back";
    convert({.from = scratch / name, .to = scratch / back, .dtype = DType::kF32}, 1);
    if (digits == 24) {
      CHECK(read_file(scratch / back / "model.safetensors") ==
            read_file(from / "model.safetensors"));
      CHECK(read_file(scratch / back / "config.json") == read_file(from / "config.json"));
    }
  }
}

TEST_CASE("conversion: finite values that become infinite are counted, by tensor") {
  const test::TempFolder scratch;
  const fs::path from = test::fixture_path("models") / "gpt2";
  const auto source = SafetensorsFile::open(from / "model.safetensors");
  fs::create_directory(scratch / "in");
  fs::copy(from / "config.json", scratch / "in/config.json");
  std::vector<SafetensorsSpec> specs;
  for (const auto& [name, entry] : source.entries()) {
    specs.push_back({name, DType::kF32, entry.shape});
  }
  {
    SafetensorsWriter writer(scratch / "in/model.safetensors", specs);
    for (const SafetensorsSpec& spec : specs) {
      std::vector<float> values(static_cast<size_t>(Shape(spec.shape).numel()), 65504);
      if (contains(spec.name, "ln_f.weight")) values[3] = 65536;
      if (contains(spec.name, "wte")) {  // in the shards of all ranks
        values.front() = -1e6F;
        values[values.size() / 2] = INFINITY;
        values.back() = 3.4e38F;
      }
      writer.write(spec.name, values.data(), values.size() * sizeof(float));
    }
    writer.finish();
  }
  using Lines = std::vector<std::string>;
  const std::string why = " beyond the new dtype became infinite";
  const Lines f16 = {"transformer.ln_f.weight: 1 value" + why,
                     "transformer.wte.weight: 2 values" + why};
  for (const int shards : {0, 3}) {
    const auto to = [&](DType dtype) {
      const std::string name = fmt::format("{}-{}", name_of(dtype), shards);
      return convert(
                 {.from = scratch / "in", .to = scratch / name, .dtype = dtype, .shards = shards},
                 2)
          .warnings;
    };
    CHECK(to(DType::kF16) == f16);
    CHECK(to(DType::kBF16) == Lines{"transformer.wte.weight: 1 value" + why});
    CHECK(to(DType::kF32) == Lines{});
  }
}

TEST_CASE("conversion: a key of config.json that nothing is computed from is named") {
  const test::TempFolder scratch;
  fs::copy(test::fixture_path("models") / "llama_gqa_llama3", scratch / "in",
           fs::copy_options::recursive);
  Json config = read_json_file(scratch / "in" / "config.json");
  config["clip_qkv"] = 8;
  write_json_file(scratch / "in" / "config.json", config);
  const auto warnings = convert({.from = scratch / "in", .to = scratch / "out"}, 1).warnings;
  REQUIRE(warnings.size() == 1);
  CHECK(test::contains(warnings[0], "config.json: clip_qkv: unknown key"));
}

std::vector<double> read(const SafetensorsFile& file, const std::string& name) {
  std::vector<double> values(static_cast<size_t>(file.entry(name).numel));
  file.read_elements(name, 0, file.entry(name).numel, DType::kF64, values.data());
  return values;
}

TEST_CASE("conversion: with an adapter, PEFT's sum where it has a layer, else the base") {
  const test::TempFolder scratch;
  const fs::path adapter = test::fixture_path("models") / "lora_gpt2", from = adapter / "base";
  const ConversionOptions merge = {.from = from, .adapter = adapter, .to = scratch / "one"};
  CHECK(convert(merge, 1).warnings.empty());
  const auto reference = SafetensorsFile::open(adapter / "reference.safetensors");
  const auto base = SafetensorsFile::open(from / "model.safetensors");
  const auto merged = SafetensorsFile::open(scratch / "one/model.safetensors");
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
  for (const char* name : {"config.json", "generation_config.json"}) {
    CHECK(read_file(scratch / "one" / name) == read_file(from / name));
  }
  // The pieces of ranks' shards begin and end within rows.
  ConversionOptions shards = merge;
  shards.to = scratch / "shards";
  shards.shards = 5;
  convert(shards, 3);
  convert({.from = scratch / "shards", .to = scratch / "again"}, 2);
  CHECK(read_file(scratch / "again/model.safetensors") ==
        read_file(scratch / "one/model.safetensors"));
  ConversionOptions small = merge;
  small.to = scratch / "small";
  small.dtype = DType::kBF16;
  small.max_file_bytes = 5000;
  CHECK(convert(small, 2).files > 2);
  CHECK(contains(read_file(scratch / "small/config.json"), "\"dtype\": \"bfloat16\""));
  CHECK(contains(error_on_last_rank(merge, 2), "one: is there already"));
  CHECK(error_on_last_rank({.from = adapter, .to = scratch / "new"}, 2) ==
        adapter.string() + ": a LoRA adapter, no model: fsdp merge adds it to its model");
}

TEST_CASE("conversion: an adapter's tokenizer that cannot be read") {
  const test::TempFolder scratch;
  const fs::path lora = test::fixture_path("models") / "lora_gpt2";
  fs::create_directory(scratch / "lora");
  for (const char* name : {"adapter_model.safetensors", "adapter_config.json"}) {
    fs::copy(lora / name, scratch / "lora" / name);
  }
  scratch.write("lora/tokenizer.json", "{}");
  fs::create_directory(scratch / "to");
  ConversionOptions merge = {
      .from = lora / "base", .adapter = scratch / "lora", .to = scratch / "to/one"};
  const std::vector<std::string> warnings = convert(merge, 1).warnings;
  CHECK(std::count(warnings.begin(), warnings.end(),
                   "the adapter's tokenizer cannot be read: the token that ends "
                   "a text is not written") == 1);
  merge.to = scratch / "to/two";
  const test::IoFaults faults(
      scratch / "to",
      {.fault = test::IoFault::kError, .from_then_on = true, .error = EIO, .only = "read"});
  CHECK(contains(error_on_last_rank(merge, 1), "tokenizer.json"));
  CHECK(!fs::exists(merge.to));
}

TEST_CASE("conversion: a sum that its dtype cannot hold is told") {
  const test::TempFolder scratch;
  const fs::path lora = test::fixture_path("models") / "lora_gpt2";
  fs::copy(lora / "adapter_model.safetensors", scratch / "adapter_model.safetensors");
  Json json = read_json_file(lora / "adapter_config.json");
  json["lora_alpha"] = 1e9;
  scratch.write("adapter_config.json", json.dump());
  const ConversionSummary done = convert({.from = lora / "base",
                                          .adapter = scratch.path(),
                                          .to = scratch / "out",
                                          .dtype = DType::kF16},
                                         1);
  CHECK(!done.warnings.empty());
  for (const std::string& line : done.warnings) {
    CHECK(contains(line, "attn.c_attn.weight: "));
    CHECK(contains(line, " beyond the new dtype became infinite"));
  }
}

TEST_CASE("conversion: a folder of several dtypes keeps each, without prefix it gets one") {
  const test::TempFolder scratch;
  const fs::path from = test::fixture_path("models") / "gpt2";
  const auto source = SafetensorsFile::open(from / "model.safetensors");
  fs::create_directory(scratch / "mixed");
  fs::copy(from / "config.json", scratch / "mixed/config.json");
  std::vector<SafetensorsSpec> specs = {{"h.0.attn.bias", DType::kI64, {1, 1, 4, 4}},
                                        {"lm_head.weight", DType::kF16, {97, 24}}};
  for (const auto& [name, entry] : source.entries()) {
    const DType dtype = contains(name, ".ln_") ? DType::kF64 : DType::kBF16;
    specs.push_back({name.substr(12), dtype, entry.shape});
  }
  {
    SafetensorsWriter writer(scratch / "mixed/model.safetensors", specs);
    for (const SafetensorsSpec& spec : specs) {
      std::vector<double> zeros(static_cast<size_t>(Shape(spec.shape).numel()));
      writer.write(spec.name, zeros.data(), zeros.size() * size_of(spec.dtype));
    }
    writer.finish();
  }
  convert({.from = scratch / "mixed", .to = scratch / "shards", .shards = 2}, 2);
  convert({.from = scratch / "shards", .to = scratch / "out", .max_file_bytes = 5000}, 2);
  const auto out = SafetensorsFolder::open(scratch / "out");
  CHECK(out.files().size() > 2);
  CHECK(out.tensors().size() == source.entries().size());  // without mask and tied head
  for (const auto& [name, tensor] : out.tensors()) {
    CHECK(name.starts_with("transformer."));
    CHECK(tensor.dtype == (contains(name, ".ln_") ? DType::kF64 : DType::kBF16));
  }
}

TEST_CASE("conversion: a copy of the tied head is dropped, another head refused by all ranks") {
  const test::TempFolder scratch;
  test::write_with_tied_copy(scratch / "copy", {});
  convert({.from = scratch / "copy", .to = scratch / "out"}, 3);
  CHECK(read_file(scratch / "out/model.safetensors") ==
        read_file(test::fixture_path("models/gpt2/model.safetensors")));
  test::write_with_tied_copy(scratch / "first", 0);
  test::write_with_tied_copy(scratch / "last", 97 * 24 - 1);
  for (const char* from : {"first", "last"}) {
    CHECK(contains(error_on_last_rank({.from = scratch / from, .to = scratch / "none"}, 3),
                   "tied: lm_head.weight: expected absent or equal to transformer.wte.weight"));
  }
  CHECK(!fs::exists(scratch / "none"));
}

TEST_CASE("conversion: the files of tokenizer and generation come along, others do not") {
  const test::TempFolder scratch;
  fs::copy(test::fixture_path("models") / "gpt2", scratch / "in");
  for (const char* name : {"tokenizer.json", "tokenizer.model", "notes.txt"}) {
    scratch.write(std::string("in/") + name, name);
  }
  const std::string generation = "{\"max_new_tokens\": 7}";
  scratch.write("in/generation_config.json", generation);
  convert({.from = scratch / "in", .to = scratch / "shards", .shards = 2}, 1);
  convert({.from = scratch / "shards", .to = scratch / "out"}, 1);
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    CHECK(read_file(scratch / "out" / name) == name);
  }
  CHECK(read_file(scratch / "out/generation_config.json") == generation);
  CHECK(!fs::exists(scratch / "out/notes.txt"));
  CHECK(!fs::exists(scratch / "out/reference.json"));
}

// A chat's tokenizer in the folder of a base model.
TEST_CASE("conversion: a model ends where its tokenizer ends a text") {
  const test::TempFolder scratch;
  fs::copy(test::fixture_path("models") / "gpt2", scratch / "in");
  scratch.write("in/tokenizer.json",
                R"({"added_tokens": [{"id": 5, "content": "<|im_end|>", "special": true}],
                    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
                    "model": {"type": "BPE", "merges": [],
                              "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4}}})");
  scratch.write("in/tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  const auto is_same = [&](const char* name, const char* before) {
    return read_file(scratch / name) == read_file(scratch / before);
  };
  // config.json alone says the end; the new folder has the other file, too.
  CHECK(convert({.from = scratch / "in", .to = scratch / "alone"}, 1).warnings ==
        std::vector<std::string>{"eos_token_id: 5 (config.json 2, generation_config.json 2): the "
                                 "tokenizer's is written"});
  CHECK(read_json_file(scratch / "alone/config.json")["eos_token_id"] == 5);
  CHECK(read_json_file(scratch / "alone/config.json")["bos_token_id"] == 1);
  scratch.write("in/generation_config.json", R"({"eos_token_id": 0, "top_k": 7})");
  CHECK(convert({.from = scratch / "in", .to = scratch / "shards", .shards = 2}, 1).warnings ==
        std::vector<std::string>{"eos_token_id: 5 (config.json 2, generation_config.json 0): the "
                                 "tokenizer's is written"});
  const Json generation = read_json_file(scratch / "shards/generation_config.json");
  CHECK(generation["eos_token_id"] == Json::array({5, 0}));
  CHECK(generation["top_k"] == 7);
  CHECK(convert({.from = scratch / "shards", .to = scratch / "again"}, 1).warnings.empty());
  CHECK(is_same("again/config.json", "shards/config.json"));
  CHECK(is_same("again/generation_config.json", "shards/generation_config.json"));
  // One of several ends is the tokenizer's: nothing is changed.
  scratch.write("in/generation_config.json", R"({ "eos_token_id":   [0, 5]})");
  CHECK(convert({.from = scratch / "in", .to = scratch / "agrees"}, 1).warnings.empty());
  CHECK(is_same("agrees/generation_config.json", "in/generation_config.json"));
  CHECK(read_json_file(scratch / "agrees/config.json")["eos_token_id"] == 2);
}

TEST_CASE("conversion: mistakes are said on every rank and leave nothing behind") {
  const test::TempFolder scratch;
  const fs::path from = test::fixture_path("models") / "gpt2";
  CHECK(contains(error_on_last_rank({.from = scratch / "gone", .to = scratch / "out"}, 3),
                 "gone/config.json: cannot open"));
  fs::create_directory(scratch / "taken");
  scratch.write("taken/x", "");
  CHECK(contains(error_on_last_rank({.from = from, .to = scratch / "taken"}, 3),
                 "taken: is there already; give another one"));
  fs::create_directory(scratch / "wrong");
  fs::copy(from / "config.json", scratch / "wrong/config.json");
  fs::copy(test::fixture_path("models") / "gpt2_5heads/model.safetensors",
           scratch / "wrong/model.safetensors");
  CHECK(contains(error_on_last_rank({.from = scratch / "wrong", .to = scratch / "out"}, 2),
                 "wrong: tensors do not fit the gpt2 model of its config.json:"));
  CHECK(!fs::exists(scratch / "out"));
}

TEST_CASE("conversion: names without what wrappers of modules put there; the rest is the same") {
  const test::TempFolder scratch;
  const fs::path from = test::fixture_path("models") / "gpt2";
  const auto source = SafetensorsFile::open(from / "model.safetensors");
  fs::create_directory(scratch / "wrapped");
  for (const char* name : {"config.json", "generation_config.json"}) {
    if (fs::exists(from / name)) fs::copy(from / name, scratch / "wrapped" / name);
  }
  std::vector<SafetensorsSpec> specs;
  for (const auto& [name, entry] : source.entries()) {
    specs.push_back({"module." + name, *entry.dtype, entry.shape});
  }
  {
    SafetensorsWriter writer(scratch / "wrapped/model.safetensors", specs);
    for (const auto& [name, entry] : source.entries()) {
      writer.write("module." + name, entry.data, entry.end - entry.begin);
    }
    writer.finish();
  }
  convert({.from = from, .to = scratch / "plain"}, 1);
  convert({.from = scratch / "wrapped", .to = scratch / "out", .stripped = {"module."}}, 2);
  CHECK(read_file(scratch / "out/model.safetensors") ==
        read_file(scratch / "plain/model.safetensors"));
  CHECK(contains(error_on_last_rank({.from = scratch / "wrapped", .to = scratch / "no"}, 1),
                 "fsdp convert --strip-prefix module. "));
}

}  // namespace
}  // namespace fsdp::tools
