// What a run would need if something were changed, and the search for what fits.
// Requirements: S0.7.
#include "tools/predict/memory_changes.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tools/predict/machines.h"

namespace fsdp::tools {
namespace {

RunPlan plan_of(const std::vector<config::Override>& overrides, int ranks) {
  std::vector<config::Override> all = {
      "model.model_type=llama", "model.hidden_size=48",    "model.layers=4", "model.heads=4",
      "data.train=[text.txt]",  "data.sequence_length=32", "train.batch=8",  "train.steps=3"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  const config::TrainConfig config = config::read_config("", all);
  return {config, 257, data_of(config, ranks), ranks, {}};
}

// Whose kernels take longer on a GPU than the host needs to issue them, so that what is added to a
// step is seen.
RunPlan large_plan_of(const std::vector<config::Override>& overrides, int ranks) {
  std::vector<config::Override> all = {"model.hidden_size=2048", "data.sequence_length=1024"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return plan_of(all, ranks);
}

const Alternative* find(const std::vector<Alternative>& all, const std::string& text) {
  for (const Alternative& each : all) {
    if (each.change.text() == text) return &each;
  }
  return nullptr;
}

TEST_CASE("memory changes: each needs what the run so configured needs") {
  const RunPlan plan = plan_of({}, 2);
  const std::vector<Alternative> all = plan.alternatives();
  for (const std::string text :
       {"train.recompute.mode=full", "train.recompute.mode=offload", "fsdp.strategy=no_shard",
        "train.micro_steps=4", "train.dtype=bf16", "fsdp.release_arena=true", "fsdp.wrap=none",
        "train.optimizer.state_dtype=bf16"}) {
    CAPTURE(text);
    const Alternative* const found = find(all, text);
    REQUIRE(found);
    CHECK(found->bytes == plan_of({text}, 2).run().bytes);
  }
  const Alternative* const four = find(all, "4 ranks");
  REQUIRE(four);
  CHECK(four->bytes == plan_of({}, 4).run().bytes);
  CHECK(find(all, "512 ranks train.batch=512"));
  const Alternative* const masters =
      find(all, "train.master_dtype=bf16 train.stochastic_rounding=true");
  REQUIRE(masters);
  CHECK(masters->change.keeps == Keeps::kDType);
  CHECK(masters->bytes ==
        plan_of({"train.master_dtype=bf16", "train.stochastic_rounding=true"}, 2).run().bytes);
  CHECK(!find(all, "fsdp.root=split"));  // as it is
  const std::vector<Alternative> of_whole = plan_of({"fsdp.root=whole"}, 2).alternatives();
  const Alternative* const split = find(of_whole, "fsdp.root=split");
  REQUIRE(split);
  CHECK(split->bytes == plan.run().bytes);
  CHECK(!find(all, "2 ranks"));                   // as it is
  CHECK(!find(all, "fsdp.strategy=full_shard"));  // too
  for (size_t i = 1; i < all.size(); ++i) CHECK(all[i - 1].bytes <= all[i].bytes);
}

TEST_CASE("memory changes: the last rank has a row less, and no row of the sample") {
  const RunPlan plan = plan_of({"sample.tokens=3"}, 3);
  CHECK(plan.run().bytes >= plan_of({"sample.tokens=0"}, 3).run().bytes);
}

TEST_CASE("memory changes: offload takes memory off a GPU, and none off a CPU") {
  const RunPlan cpu = large_plan_of({}, 2);
  const RunPlan gpu(cpu.config(), 257, data_of(cpu.config(), 2), 2,
                    {.cuda = cuda::CudaOptions{}, .meta = meta::MetaOptions{}});
  for (const std::string text : {"fsdp.offload=optimizer", "fsdp.offload=all"}) {
    CAPTURE(text);
    const std::vector<Alternative> on_cpu = cpu.alternatives(), on_gpu = gpu.alternatives();
    const Alternative* const rehearsed = find(on_cpu, text);
    const Alternative* const offloaded = find(on_gpu, text);
    REQUIRE(rehearsed);
    REQUIRE(offloaded);
    CHECK(rehearsed->bytes > cpu.run().bytes);
    CHECK(rehearsed->change.keeps == Keeps::kBits);
    CHECK(offloaded->bytes < gpu.run().bytes);
    CHECK(offloaded->change.keeps == Keeps::kRounding);
    CHECK(offloaded->ms > gpu.run().run->step_ms());
    const PlannedRun run = gpu.run(offloaded->change);
    CHECK(run.bytes == run.run->device_needed());
    CHECK(run.run->host_needed() > 0);
  }
}

// The host has the inputs of four blocks: 4 rows of 1024 tokens on each of two ranks, 2048 wide,
// f32.
TEST_CASE(
    "memory changes: inputs on the host take less of a GPU than full recompute, for its bits") {
  const RunPlan cpu = large_plan_of({}, 2);
  Rates rates = machine_rates(kUsualMachine);
  rates.host_copy.bytes_per_s = 1e8;  // slower than the blocks compute, which would hide it
  const RunPlan gpu(cpu.config(), 257, data_of(cpu.config(), 2), 2,
                    {.cuda = cuda::CudaOptions{}, .meta = meta::MetaOptions{}},
                    std::make_shared<CallRates>(rates));
  const std::string full = "train.recompute.mode=full", offload = "train.recompute.mode=offload";
  const std::vector<Alternative> on_cpu = cpu.alternatives(), on_gpu = gpu.alternatives();
  for (const std::vector<Alternative>* all : {&on_cpu, &on_gpu}) {
    REQUIRE(find(*all, offload));
    CHECK(find(*all, offload)->change.keeps == Keeps::kBits);
  }
  CHECK(find(on_cpu, offload)->bytes > find(on_cpu, full)->bytes);
  CHECK(find(on_gpu, offload)->bytes < find(on_gpu, full)->bytes);
  CHECK(find(on_gpu, offload)->ms > find(on_gpu, full)->ms);
  const PlannedRun run = gpu.run(find(on_gpu, offload)->change);
  CHECK(run.bytes == run.run->device_needed());
  CHECK(run.run->host_needed() == size_t{4} * 4 * 1024 * 2048 * 4);
}

TEST_CASE("memory changes: none keeps the bits where attention adds up in any order") {
  for (const bool any_order : {false, true}) {
    std::vector<config::Override> overrides = {"train.dtype=bf16"};
    if (any_order) overrides.emplace_back("train.attention_deterministic=false");
    const config::TrainConfig config = plan_of(overrides, 2).config();
    const RunPlan gpu(config, 257, data_of(config, 2), 2,
                      {.cuda = cuda::CudaOptions{}, .meta = meta::MetaOptions{}});
    const std::vector<Alternative> all = gpu.alternatives();
    const Alternative* const full = find(all, "train.recompute.mode=full");
    REQUIRE(full);
    CHECK(full->change.keeps == (any_order ? Keeps::kRounding : Keeps::kBits));
    const auto keeps_bits = [](const Alternative& each) {
      return each.change.keeps == Keeps::kBits;
    };
    CHECK(std::ranges::any_of(all, keeps_bits) != any_order);
  }
}

TEST_CASE("memory changes: what train refuses is no alternative") {
  const auto alternatives = [](const std::vector<config::Override>& overrides) {
    return plan_of(overrides, 2).alternatives();
  };
  CHECK(find(alternatives({"train.dtype=f16"}), "train.dtype=f32"));
  CHECK(!find(alternatives({"train.dtype=f16", "train.master_dtype=f16"}), "train.dtype=f32"));
  // A key that a change takes the effect of is left out.
  CHECK(find(alternatives({"fsdp.units_in_flight=3"}), "fsdp.strategy=no_shard"));
}

TEST_CASE("memory changes: those that keep the bits come first; all that are found fit") {
  const RunPlan plan = plan_of({"fsdp.strategy=no_shard"}, 2);
  const size_t now = plan.run().bytes;
  const FittingChanges slightly = plan.changes_that_fit(now * 97 / 100, 3);
  REQUIRE(slightly.fitting.size() == 3);
  CHECK(slightly.fitting[0].change.keeps == Keeps::kBits);
  for (const int percent : {97, 80, 60}) {
    CAPTURE(percent);
    const size_t limit = now * static_cast<size_t>(percent) / 100;
    const FittingChanges found = plan.changes_that_fit(limit, 3);
    REQUIRE(!found.fitting.empty());
    for (size_t i = 0; i < found.fitting.size(); ++i) {
      const Alternative& each = found.fitting[i];
      CHECK(each.bytes <= limit);
      CHECK(each.change.ranks == 0);
      if (i > 0) CHECK(found.fitting[i - 1].change.keeps <= each.change.keeps);
      std::vector<config::Override> overrides(each.change.overrides.begin(),
                                              each.change.overrides.end());
      if (overrides.front().text.starts_with("fsdp.strategy")) continue;  // given twice
      overrides.emplace_back("fsdp.strategy=no_shard");
      if (each.change.text().find("fsdp.strategy") == std::string::npos) {
        CHECK(plan_of(overrides, 2).run().bytes == each.bytes);
      }
    }
  }
  const FittingChanges none = plan.changes_that_fit(1000, 3);
  CHECK(none.fitting.empty());
  CHECK(none.least.bytes < now * 6 / 10);
  CHECK(!none.least.change.overrides.empty());
}

TEST_CASE("memory changes: as flags of the command line") {
  const MemoryChange change = {.overrides = {"a.b=1", "c=2"}};
  CHECK(change.text() == "a.b=1 c=2");
  CHECK(change.flags() == "--set a.b=1 --set c=2");
  CHECK(MemoryChange{.ranks = 1}.text() == "1 rank");
}

}  // namespace
}  // namespace fsdp::tools
