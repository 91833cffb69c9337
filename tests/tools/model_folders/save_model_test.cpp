// Folders that a model in memory is saved to: the same bytes as the folder it came from, whatever
// the number of ranks; files of limited size; nothing is left of a folder that fails.
#include "tools/model_folders/save_model.h"

#include <csignal>

#include <doctest/doctest.h>
#include <sys/resource.h>

#include "comm/local_transport.h"
#include "core/io/json.h"
#include "tests/support/temp_folder.h"
#include "tools/launch/launch.h"
#include "tools/train/placed_session.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;
using test::contains;

// Loads a folder into the shards of `ranks` ranks and saves it; the error, "" when there is none.
std::string round_trip(const fs::path& from, const fs::path& to, int ranks, FolderOptions options,
                       comm::Strategy strategy = comm::Strategy::kFullShard) {
  std::string error;
  options.source = from;
  comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
    PlacedOptions session_options = {{.model = models::read_config((from / "config.json").string()),
                                      .max_length = 4,
                                      .fsdp = {.strategy = strategy},
                                      .training = false}};
    if (options.dtype == DType::kF64) session_options.fsdp.param_dtype = DType::kF64;
    Session session = place_session(world, session_options);
    session.initialise(
        models::from_folder(from.string(), session_options.model, session.parameters()));
    try {
      save_model(session, to, options);
    } catch (const AgreedError& agreed) {
      if (world.rank() == world.size() - 1) error = agreed.what();  // all of them know
    }
  });
  return error;
}

TEST_CASE("model folder: what transformers wrote comes back byte for byte from any shards") {
  const test::TempFolder scratch;
  for (const auto& item : fs::directory_iterator(test::fixture_path("models"))) {
    if (fs::exists(item.path() / "base")) continue;  // an adapter
    for (const int ranks : {1, 3}) {
      CAPTURE(item.path().string());
      CAPTURE(ranks);
      const fs::path to = scratch / fmt::format("{}-{}", item.path().filename().string(), ranks);
      const auto strategy = ranks == 1 ? comm::Strategy::kNoShard : comm::Strategy::kFullShard;
      REQUIRE(round_trip(item.path(), to, ranks, {}, strategy) == "");
      for (const char* name : {"model.safetensors", "config.json"}) {
        CHECK(read_file(to / name) == read_file(item.path() / name));
      }
    }
  }
}

TEST_CASE("model folder: several files, read back by the same rules") {
  const test::TempFolder scratch;
  const fs::path from = test::fixture_path("models") / "llama_gqa_llama3";
  REQUIRE(round_trip(from, scratch / "split", 2, {.max_file_bytes = 20'000}) == "");
  const SafetensorsFolder split = SafetensorsFolder::open(scratch / "split");
  CHECK(split.files().size() > 3);
  CHECK(split.warnings().empty());
  REQUIRE(round_trip(scratch / "split", scratch / "joined", 3, {}) == "");
  CHECK(read_file(scratch / "joined/model.safetensors") == read_file(from / "model.safetensors"));
  REQUIRE(round_trip(from, scratch / "bf16", 2, {.dtype = DType::kBF16}) == "");
  const SafetensorsFile bf16 = SafetensorsFile::open(scratch / "bf16/model.safetensors");
  CHECK(bf16.entry("model.norm.weight").dtype_name == "BF16");
  CHECK(read_json_file(scratch / "bf16/config.json")["dtype"] == "bfloat16");
}

TEST_CASE("model folder: what a dtype cannot hold is told, by rank 0") {
  const test::TempFolder scratch;
  const fs::path from = test::fixture_path("models") / "gpt2";
  const models::ModelConfig config = models::read_config((from / "config.json").string());
  std::vector<std::string> warnings;
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    Session session = place_session(world, {{.model = config, .max_length = 4, .training = false}});
    session.initialise([](const Parameter& p, int64_t first, Tensor& values) {
      std::vector<float> host(static_cast<size_t>(values.numel()), 1);
      if (p.name() == "final_norm.bias" && first == 0) host[0] = -65600;
      values.write(host.data());
    });
    const auto told = save_model(session, scratch / "f16", {.dtype = DType::kF16, .source = from});
    if (world.rank() == 0) warnings = told;
    CHECK(save_model(session, scratch / "f32", {.source = from}).empty());
  });
  CHECK(warnings == std::vector<std::string>{
                        "transformer.ln_f.bias: 1 value beyond the new dtype became infinite"});
}

// Of 4.1 million elements: some stretches and a part of one.
TEST_CASE("model folder: a large tensor is converted in stretches, beside no copy of itself") {
  const test::TempFolder scratch;
  models::ModelConfig config = models::preset("gpt2-124m");
  config.vocabulary = 64'011;
  config.hidden = 64;
  config.heads = config.kv_heads = 1;
  config.layers = 1;
  config.ffn = 8;
  config.max_positions = 4;
  const auto value_at = [](int64_t i) { return static_cast<float>(i % 1999 - 999); };
  const int64_t elements = config.vocabulary * config.hidden;
  std::vector<std::string> warnings;
  size_t workspace = 0;
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    Session session = place_session(world, {{.model = config, .max_length = 4, .training = false}});
    session.initialise([&](const Parameter& p, int64_t first, Tensor& values) {
      std::vector<float> host(static_cast<size_t>(values.numel()));
      for (int64_t i = 0; i < values.numel(); ++i) {
        const bool beyond = p.numel() == elements && (first + i) % (elements - 1) == 0;
        host[static_cast<size_t>(i)] = beyond ? 1e5F : value_at(first + i);
      }
      values.write(host.data());
    });
    session.backend().ledger().reset_peak();
    const auto told = save_model(session, scratch / "f16", {.dtype = DType::kF16});
    if (world.rank() != 0) return;
    warnings = told;
    workspace =
        session.backend().ledger().usage().peak[static_cast<size_t>(MemoryCategory::kWorkspace)];
  });
  CHECK(workspace <= size_t{2} << 20);
  CHECK(warnings == std::vector<std::string>{
                        "transformer.wte.weight: 2 values beyond the new dtype became infinite"});
  const auto file = SafetensorsFile::open(scratch / "f16/model.safetensors");
  std::vector<float> saved(static_cast<size_t>(elements));
  file.read_elements("transformer.wte.weight", 0, elements, DType::kF32, saved.data());
  int64_t different = 0;
  for (int64_t i = 1; i < elements - 1; ++i) {
    different += saved[static_cast<size_t>(i)] != value_at(i);
  }
  CHECK(different == 0);
}

TEST_CASE("model folder: the split into files is that of transformers") {
  const auto tensor = [](const char* name, int64_t numel) {
    return SafetensorsSpec{name, DType::kF32, {numel}};
  };
  const auto names = [](const std::vector<WeightsFile>& files) {
    std::string out;
    for (const WeightsFile& file : files) {
      out += file.name + ":";
      for (const SafetensorsSpec& t : file.tensors) out += " " + t.name;
      out += "\n";
    }
    return out;
  };
  const std::vector<SafetensorsSpec> tensors = {tensor("z", 10), tensor("y", 15), tensor("x", 26),
                                                tensor("w", 1), tensor("v", 24)};
  // huggingface_hub.split_torch_state_dict_into_shards with 100 bytes
  CHECK(names(split_into_files(tensors, 100)) ==
        "model-00001-of-00003.safetensors: x\n"
        "model-00002-of-00003.safetensors: z y\n"
        "model-00003-of-00003.safetensors: w v\n");
  CHECK(names(split_into_files(tensors, 304)) == "model.safetensors: z y x w v\n");
  CHECK(split_into_files(tensors, 303).size() == 2);
  CHECK(split_into_files(tensors, 1).size() == 5);
}

TEST_CASE("model folder: the index says which file has what, and how much there is") {
  const test::TempFolder folder;
  write_weights_index(folder.path(), {{"one", {{"a", DType::kBF16, {3, 5}}}},
                                      {"two", {{"b", DType::kF32, {2}}, {"c", DType::kF32, {}}}}});
  CHECK(read_json_file(folder / "model.safetensors.index.json") ==
        parse_json(R"({"metadata":{"total_parameters":18,"total_size":42},
                       "weight_map":{"a":"one","b":"two","c":"two"}})",
                   "expected"));
  const test::TempFolder single;
  write_weights_index(single.path(), {{"one", {{"a", DType::kBF16, {3, 5}}}}});
  CHECK(fs::is_empty(single.path()));
}

TEST_CASE("model folder: generation_config.json of a model that came without one") {
  const test::TempFolder source, made;
  source.write("config.json",
               R"({"model_type":"gpt2","vocab_size":7,"n_positions":4,"n_embd":4,"n_layer":1,
                   "n_head":1,"eos_token_id":[5,6],"bos_token_id":null,"pad_token_id":0})");
  const models::ModelConfig config = models::read_config((source / "config.json").string());
  write_config_files(made.path(), config, "float32", source.path());
  CHECK(read_json_file(made / "generation_config.json") ==
        parse_json(R"({"_from_model_config":true,"eos_token_id":[5,6],"pad_token_id":0})", ""));
  const test::TempFolder scratch;
  write_config_files(scratch.path(), models::preset("pythia-70m"), "float16", "");
  CHECK(read_json_file(scratch / "generation_config.json") ==
        parse_json(R"({"_from_model_config":true})", ""));
  CHECK(read_json_file(scratch / "config.json")["dtype"] == "float16");
}

// A full disk, played by the limit on file sizes of this process.
TEST_CASE("model folder: when it cannot be written all ranks say why and nothing is left") {
  const test::TempFolder scratch;
  const fs::path from = test::fixture_path("models") / "llama_gqa_llama3";
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const rlimit small{16384, limit.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::string error = round_trip(from, scratch / "model", 3, {});
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  CHECK(contains(error, "model.safetensors: cannot write: File too large"));
  CHECK(fs::is_empty(scratch.path()));
  fs::create_directory(scratch / "taken");
  write_file_atomically(scratch / "taken/mine", "");
  CHECK(contains(round_trip(from, scratch / "taken", 2, {}), "taken: is there already"));
  CHECK(fs::exists(scratch / "taken/mine"));
}

}  // namespace
}  // namespace fsdp::tools
