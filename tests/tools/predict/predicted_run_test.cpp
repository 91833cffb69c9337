// What a training run would take: its phases, and whether a machine has that much.
#include "tools/predict/predicted_run.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tools/model_folders/checkpoint_model.h"
#include "tools/train/config_to_session.h"

namespace fsdp::tools {
namespace {

constexpr size_t kWorkspace = static_cast<size_t>(MemoryCategory::kWorkspace);
constexpr size_t kCache = static_cast<size_t>(MemoryCategory::kKeyValueCache);
constexpr size_t kCommunication = static_cast<size_t>(MemoryCategory::kCommunication);

using Overrides = std::vector<config::Override>;

config::TrainConfig config_of(const Overrides& overrides) {
  Overrides all = {"model.model_type=llama", "model.hidden_size=24",  "model.layers=2",
                   "model.heads=2",          "data.train=[text.txt]", "data.sequence_length=16",
                   "train.batch=4",          "train.steps=3"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return config::read_config("", all);
}

std::unique_ptr<MetaRun> run_of(const Overrides& overrides, const PredictedData& data) {
  const config::TrainConfig config = config_of(overrides);
  return predicted_run(config, session_options(config, model_config(config, 257), 2, {}), data, 2);
}

std::unique_ptr<MetaRun> run_of(const Overrides& overrides) {
  return run_of(overrides, data_of(config_of(overrides), 2));
}

std::vector<std::string> names_of(const MetaRun& run) {
  std::vector<std::string> out;
  for (const PhaseMemory& phase : run.phases()) out.push_back(phase.name);
  return out;
}

TEST_CASE("predicted run: the phases that the configuration asks for, in the order of a run") {
  CHECK(names_of(*run_of({})) == std::vector<std::string>{"loading", "steps", "saving"});
  const auto all = run_of({"data.validation=[text.txt]", "sample.tokens=40", "fsdp.root=whole"});
  CHECK(names_of(*all) ==
        std::vector<std::string>{"loading", "steps", "evaluation", "saving", "sample"});
  const auto peak = [&](size_t phase, size_t category) {
    return all->phases()[phase].usage.peak[category];
  };
  // A unit is gathered to be saved: the root, whose tables of 257 x 24 and norm, with gaps to cache
  // lines of 64 elements, are 12,440 elements in two shards of 98 lines.
  CHECK(peak(3, kCommunication) == 2 * 98 * 64 * 4);
  CHECK(peak(1, kCommunication) == 0);
  // Keys and values of 16 positions in two layers.
  CHECK(peak(4, kCache) == 2 * 2 * rounded_bytes(16 * 24 * 4));
}

// The run that this was found with: a second batch finds other gaps between blocks than the first.
TEST_CASE("predicted run: an evaluation of several batches can take more than one of one") {
  const auto needed = [](const std::string& batches) {
    return run_of({"model.model_type=qwen2", "model.hidden_size=128", "model.layers=3",
                   "model.heads=4", "data.validation=[text.txt]", "data.sequence_length=128",
                   "train.steps=2", "train.batch=12", "train.micro_steps=3",
                   "train.recompute.mode=offload", "train.eval_batches=" + batches})
        ->needed();
  };
  CHECK(needed("2") > needed("1"));
  CHECK(needed("9") >= needed("2"));
}

TEST_CASE("predicted run: batches of other shapes count, wherever they come in the run") {
  PredictedData data = data_of(config_of({}), 2);
  const Overrides many = {"train.steps=1000000", "train.eval_every=1000",
                          "data.validation=[text.txt]"};
  const size_t alone = run_of(many, data)->needed();
  data.batches = {{4, 5}, {4, 16}, {3, 11}, {4, 16}};
  CHECK(run_of(many, data)->needed() >= alone);
  data.batches = {{4, 16}};
  data.validation_batches = {{4, 5}, {4, 64}};  // longer than what is trained on
  data.evaluated = 2;
  CHECK(run_of({"train.steps=1000000", "train.eval_every=1000", "data.validation=[text.txt]",
                "data.sequence_length=64"},
               data)
            ->needed() > alone);
  const auto numbered = [](int64_t i) { return data::BatchShape{4, i}; };
  CHECK(shapes_of(4, 4, numbered, {{4, 9}, {3, 12}}) ==
        std::vector<data::BatchShape>{{4, 0}, {4, 1}, {4, 2}, {4, 3}, {3, 12}, {4, 9}});
  CHECK(shapes_of(1000, 4, [](int64_t) { return data::BatchShape{4, 9}; }, {{4, 9}}).size() == 1);
}

// Of a GPU and of a CPU, whose heaps have gaps; with what is kept and what is added up between
// micro-steps.
TEST_CASE("predicted run: few micro-steps stand for many, in memory and in time") {
  for (const std::string more :
       {"fsdp.strategy=full_shard", "fsdp.strategy=shard_grad_op", "fsdp.accumulation=reduce_last",
        "train.recompute.mode=offload", "fsdp.offload=optimizer", "model.hidden_size=192"}) {
    for (const int64_t micro_steps : {3, 4, 5, 6, 7, 19}) {
      for (const bool on_gpu : {false, true}) {
        CAPTURE(fmt::format("{}, {} micro-steps, {}", more, micro_steps, on_gpu));
        const config::TrainConfig config =
            config_of({more, fmt::format("train.micro_steps={}", micro_steps),
                       fmt::format("train.batch={}", 4 * micro_steps)});
        BackendOptions backend;
        if (on_gpu) backend.cuda.emplace();
        const PlacedOptions session =
            session_options(config, model_config(config, 257), 2, backend);
        const auto run = predicted_run(config, session, data_of(config, 2), 2);
        MetaRun all(session, 2);
        all.load(models::from_scratch(0));
        for (int i = 0; i < 6; ++i) all.step({4 * micro_steps, 16});
        all.time_step({4 * micro_steps, 16});
        const auto steps = [](const MetaRun& of) { return of.phases()[1].usage; };
        CHECK(steps(*run).peak == steps(all).peak);
        CHECK(steps(*run).total_peak == steps(all).total_peak);
        CHECK(steps(*run).held_peak == steps(all).held_peak);
        CHECK(run->host_needed() == all.host_needed());
        CHECK(run->step_ms() == doctest::Approx(all.step_ms()).epsilon(1e-3));
        int64_t calls = 0, bytes = 0;
        for (const StepCall& call : run->last_step()) {
          calls += call.times;
          bytes += call.times * call.bytes;
        }
        for (const StepCall& call : all.last_step()) bytes -= call.bytes;
        CHECK(calls == std::ssize(all.last_step()));
        CHECK(bytes == 0);
        CHECK(run->last_step().back().end_ms ==
              doctest::Approx(all.last_step().back().end_ms).epsilon(1e-3));
      }
    }
  }
}

// Of 20 micro-steps of rank 0 some have 3 rows and some 2, or no more than one and none.
TEST_CASE("predicted run: few micro-steps stand for many of two sizes") {
  for (const int64_t rows : {13, 51, 45, 54, 59, 60}) {
    CAPTURE(rows);
    const config::TrainConfig config =
        config_of({"train.micro_steps=20", fmt::format("train.batch={}", 2 * rows)});
    const PlacedOptions session = session_options(config, model_config(config, 257), 2, {});
    const auto run = predicted_run(config, session, data_of(config, 2), 2);
    MetaRun all(session, 2);
    all.load(models::from_scratch(0));
    for (int i = 0; i < 6; ++i) all.step({2 * rows, 16});
    all.time_step({2 * rows, 16});
    CHECK(run->phases()[1].usage.peak == all.phases()[1].usage.peak);
    CHECK(run->phases()[1].usage.held_peak == all.phases()[1].usage.held_peak);
    CHECK(run->step_ms() == doctest::Approx(all.step_ms()).epsilon(1e-3));
  }
}

TEST_CASE("predicted run: the copy of checkpoint.async is there until the end") {
  const auto plain = run_of({"checkpoint.every=2"});
  const auto copied = run_of({"checkpoint.every=2", "checkpoint.async=true"});
  CHECK(names_of(*copied) == std::vector<std::string>{"loading", "checkpoints", "steps", "saving"});
  const size_t more = copied->phases()[1].usage.current[kWorkspace];
  CHECK(more > 3 * 4 * 257 * 24 / 2);  // of half the table: values and two moments
  // What an optimizer step takes of the same category is held at other moments than the peak.
  for (const size_t phase : {2, 3}) {
    CHECK(copied->phases()[phase].usage.peak[kWorkspace] >= more);
    CHECK(copied->phases()[phase].usage.peak[kWorkspace] <=
          plain->phases()[phase - 1].usage.peak[kWorkspace] + more);
  }
}

TEST_CASE("predicted run: what is saved in another dtype is converted") {
  const auto workspace = [](const Overrides& overrides) {
    return run_of(overrides)->phases()[2].usage.peak[kWorkspace];
  };
  CHECK(saved_dtype(config_of({"train.dtype=bf16"})) == DType::kF32);
  CHECK(saved_dtype(config_of({"train.save_dtype=bf16"})) == DType::kBF16);
  CHECK(workspace({"train.save_dtype=bf16"}) == workspace({}) + rounded_bytes(257 * 24 * 2));
}

}  // namespace
}  // namespace fsdp::tools
