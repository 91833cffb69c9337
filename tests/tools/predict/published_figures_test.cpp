// What the guides' models take, as it was published or follows from published sizes: shards with
// gradients and Adam's moments, 16 bytes a parameter, and the largest units.
// Figures: models_and_requirements.md 5.4 of the project's references.
// Requirements: S2.6.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tools/predict/predicted_run.h"
#include "tools/predict/unit_table.h"
#include "tools/train/config_to_session.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

constexpr double kGiB = size_t{1} << 30;

std::unique_ptr<MetaRun> run_of(const std::string& preset, int ranks,
                                const std::vector<config::Override>& overrides = {},
                                bool on_gpu = false) {
  std::vector<config::Override> all = {"model.preset=" + preset, "data.sequence_length=8",
                                       "train.steps=2", fmt::format("train.batch={}", ranks)};
  all.insert(all.end(), overrides.begin(), overrides.end());
  const config::TrainConfig config = config::read_config("", all);
  BackendOptions backend;
  if (on_gpu) backend.cuda.emplace();
  const PlacedOptions session =
      session_options(config, model_config(config, vocabulary_of(config)), ranks, backend);
  return predicted_run(config, session, data_of(config, ranks), ranks);
}

double bytes_of(const MemoryUsage& usage, MemoryCategory category) {
  return static_cast<double>(usage.peak[static_cast<size_t>(category)]);
}

std::string gib(double bytes, int digits) { return fmt::format("{:.{}f}", bytes / kGiB, digits); }

// The gradient of a shard is as large as its masters; at its peak the category has whole units too.
std::string states(const MetaRun& run) {
  const double masters = bytes_of(run.usage(), MemoryCategory::kParameterShard);
  CHECK(bytes_of(run.usage(), MemoryCategory::kGradient) >= masters);
  return gib(2 * masters + bytes_of(run.usage(), MemoryCategory::kOptimizerState), 2);
}

TEST_CASE("published figures: states of the guides' models") {
  CHECK(states(*run_of("codellama-7b", 2)) == "50.21");
  CHECK(states(*run_of("mistral-7b", 8, {"train.dtype=bf16"})) == "13.49");
  CHECK(states(*run_of("bloom-560m", 1)) == "8.33");
  CHECK(states(*run_of("bloom-560m", 2)) == "4.17");
}

TEST_CASE("published figures: a block of CodeLlama-7B and its root, in f32") {
  const auto run = run_of("codellama-7b", 2, {"fsdp.root=whole"});
  const std::vector<UnitRow> units = unit_rows(run->session().sharded());
  CHECK(gib(4.0 * static_cast<double>(units.front().parameters), 3) == "0.977");
  CHECK(gib(4.0 * static_cast<double>(units.back().parameters), 3) == "0.754");
}

// 13.11 billion parameters: the guide's model has a head of its own. The host's shards are masters
// of four bytes and their copies of two.
TEST_CASE("published figures: fairseq's 13 billion parameters on the host") {
  for (const char* offload : {"optimizer", "all"}) {
    CAPTURE(offload);
    const auto run = run_of(
        "transformer_lm_gpt3_13", 1,
        {"train.dtype=f16", "model.tie_embeddings=false", std::string("fsdp.offload=") + offload},
        true);
    const MemoryUsage host = run->host_usage();
    const double shards = bytes_of(host, MemoryCategory::kParameterShard);
    const double adam = shards * 4 / 6 + bytes_of(host, MemoryCategory::kOptimizerState);
    CHECK(gib(adam, 1) == "146.5");
    CHECK(gib(adam + bytes_of(host, MemoryCategory::kGradient), 1) == "195.4");
    CHECK(gib(shards * 2 / 6, 1) == "24.4");
  }
}

}  // namespace
}  // namespace fsdp::tools
