// A checkpoint as a model: what convert makes of it, and what inspect says about it. That it is the
// model which the run saves at that step: tests/e2e/resume.sh.
#include "tools/model_folders/checkpoint_model.h"

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "tests/support/checkpoint_run.h"
#include "tools/model_folders/load_model.h"
#include "tools/train/config_to_session.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

// Of a run with this configuration, on two ranks, after two steps.
void write(const fs::path& folder, const PlacedOptions& options, const std::string& yaml,
           bool exchanged_base = false) {
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    Session session = place_session(world, options);
    test::initialise_for_checkpoint(session);
    test::run_steps(session, 0, 2);
    Manifest facts;
    facts.progress.steps = 2;
    facts.base_path = "from seed 3";
    facts.base_hash = exchanged_base ? 1 : hash_frozen(session);
    facts.config = config::to_yaml(config::parse_config(yaml, "test", {}));
    facts.model = models::config_json(options.model, "");
    write_checkpoint(session, folder, facts);
  });
}

ConversionSummary convert(const fs::path& from, const fs::path& to, int ranks,
                          std::optional<DType> dtype = {}) {
  ConversionSummary out;
  comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
    RankContext rank{.world = world, .backend = {}, .backend_note = {}};
    const ConversionSummary mine =
        convert_checkpoint(rank, {.from = from, .to = to, .dtype = dtype});
    if (world.rank() == 0) out = mine;
  });
  return out;
}

TEST_CASE("checkpoint as a model: its values, on any number of ranks and in any dtype") {
  const test::TempFolder folder;
  PlacedOptions options = test::checkpoint_options();
  options.frozen = {"transformer.wpe.weight"};
  write(folder / "step-2", options,
        "data: {sequence_length: 6}\ntrain: {seed: 3, freeze: [transformer.wpe.weight]}");
  for (const int ranks : {1, 3}) {
    const fs::path to = folder / fmt::format("model{}", ranks);
    const ConversionSummary done = convert(folder / "step-2", to, ranks);
    CHECK(done.files == 1);
    const SafetensorsFolder model = SafetensorsFolder::open(to);
    CHECK(done.tensors == model.tensors().size());
    comm::run_local_ranks(1, [&](comm::Communicator& world) {
      Session session = place_session(world, options);
      test::initialise_for_checkpoint(session);  // of the frozen table
      Checkpoint checkpoint(folder / "step-2");
      restore(session, checkpoint);
      for (const bool frozen : {false, true}) {
        for (const StatePartOwned& part : frozen ? owned_frozen(session) : owned_state(session)) {
          if (!part.weights) continue;
          std::vector<float> values(static_cast<size_t>(part.values.numel()));
          model.read_elements(part.name, part.first, part.values.numel(), DType::kF32,
                              values.data());
          CHECK(values == part.values.to_host<float>());
        }
      }
    });
  }
  write(folder / "step-3", options,
        "data: {sequence_length: 6}\ntrain: {seed: 3, freeze: [transformer.wpe.weight]}", true);
  CHECK(test::contains(
      test::error_of([&] { convert(folder / "step-3", folder / "exchanged", 2); }),
      "the parameters that were not trained (from seed 3) have other values now than those"));
  convert(folder / "step-2", folder / "half", 2, DType::kBF16);
  CHECK(dtype_of_weights(folder / "half") == DType::kBF16);
  CHECK(models::read_config((folder / "half/config.json").string()).hidden == 15);
}

TEST_CASE("checkpoint as a model: inspection names damaged files") {
  const test::TempFolder folder;
  const fs::path step = folder / "step-2";
  write(step, test::checkpoint_options(), "data: {sequence_length: 6}");
  const CheckpointInspection sound = inspect_checkpoint(step);
  CHECK(sound.problems.empty());
  const std::string text = format_checkpoint(sound);
  CHECK(test::contains(text, "a checkpoint after step 2 (0 samples), written by 2 ranks"));
  CHECK(test::contains(text, "transformer.wte.weight/exp_avg"));
  CHECK(test::contains(text, "all 2 files have their sizes and checksums"));
  const Json json = parse_json(checkpoint_json(sound), "inspect");
  CHECK(json.at("tensors").at("transformer.wte.weight").at("shape").get<std::vector<int64_t>>() ==
        std::vector<int64_t>{23, 15});
  const std::string shard = (step / sound.manifest.files[0].name).string();
  std::string bytes = read_file(shard);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file_atomically(shard, bytes);
  const CheckpointInspection damaged = inspect_checkpoint(step);
  REQUIRE(damaged.problems.size() == 1);
  CHECK(test::contains(damaged.problems[0], shard + ": damaged"));
  CHECK(test::contains(format_checkpoint(damaged), "problem: " + shard));
}

TEST_CASE("model in a run directory") {
  const test::TempFolder folder;
  CHECK(model_in("gpt2-124m") == "gpt2-124m");
  for (const char* name : {"run", "run/model", "run/step-1", "other"}) {
    fs::create_directory(folder / name);
  }
  folder.write("run/run_args.json", "{}");
  CHECK(model_in(folder / "other") == folder / "other");
  CHECK(test::contains(test::error_of([&] { model_in(folder / "run"); }),
                       "a run directory without a model"));
  folder.write("run/model/config.json", "{}");
  CHECK(model_in(folder / "run") == folder / "run/model");
  CHECK(model_in(folder / "run/model") == folder / "run/model");
  CHECK(find_model(folder / "run").folder == folder / "run/model");
  folder.write("run/step-1/checkpoint.json", "{}");
  CHECK(is_checkpoint(folder / "run/step-1"));
  CHECK(test::contains(test::error_of([&] { model_in(folder / "run/step-1"); }),
                       "a checkpoint of a run, no model: fsdp convert "));
  folder.write("other/.metadata", "");
  CHECK(test::contains(test::error_of([&] { model_in(folder / "other"); }),
                       "a checkpoint of PyTorch's DCP"));
}

}  // namespace
}  // namespace fsdp::tools
