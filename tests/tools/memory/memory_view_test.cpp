// What fsdp memory prints.
// Requirements: S2.6.
#include "tools/memory/memory_view.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

using test::contains;

RunPlan plan_of_two() {
  const config::TrainConfig config = config::read_config(
      "", {"model.model_type=llama", "model.hidden_size=48", "model.layers=2", "model.heads=4",
           "data.train=[text.txt]", "data.sequence_length=64", "train.batch=8", "train.steps=3"});
  return {config, 257, data_of(config, 2), 2, {.meta = meta::MetaOptions{.keeps_blocks = true}}};
}

MemoryView view_of(const RunPlan& plan) {
  return {.model = "a model", .planned = plan.run(), .alternatives = plan.alternatives()};
}

TEST_CASE("memory view: peak, moment, what lies there, alternatives") {
  const RunPlan plan = plan_of_two();
  const MemoryView view = view_of(plan);
  const std::string text = format_memory_view(view);
  for (const char* part :
       {"a model\nmemory per rank (MiB) ", "\n  activation ", "\n  in all ", "\n  where: device ",
        "\n  the most: in ", "\npadding: ", "\nlargest tensors then", "\n  as it is ",
        "train.recompute.mode=full "}) {
    CAPTURE(part);
    CHECK(contains(text, part));
  }
  CHECK(!contains(text, "fits"));
  // What lies there at the most is all that is counted then.
  size_t there = 0;
  for (const meta::LoggedBlock& block : view.planned.run->blocks_then()) there += block.bytes;
  CHECK(there == view.planned.run->usage().total_peak);
  const Json json = memory_json(view);
  CHECK(json.at("peak").at("total").get<int64_t>() == static_cast<int64_t>(view.planned.bytes));
  CHECK(json.at("moment").at("phase").get<std::string>() == view.planned.run->moment().phase);
  CHECK(json.at("alternatives").size() == view.alternatives.size());
}

TEST_CASE("memory view: the verdict of a device, and the change that fits") {
  const RunPlan plan = plan_of_two();
  MemoryView view = view_of(plan);
  const size_t needed = view.planned.bytes;
  view.device = DeviceMemory{.name = "a device", .bytes = needed};
  CHECK(contains(format_memory_view(view), "\nfits: "));
  view.device->context = 1;
  CHECK(contains(format_memory_view(view), "\ndoes not fit: "));
  CHECK(contains(format_memory_view(view), "; 1 bytes are missing\n"));
  view.fit = needed;
  CHECK(contains(format_memory_view(view), " as it is\n"));
  view.fit = needed - 1;
  view.fitting = plan.changes_that_fit(view.fit, 1);
  CHECK(contains(format_memory_view(view), " with --set "));
  CHECK(memory_json(view).at("fit").at("changes").size() == 1);
}

TEST_CASE("memory view: of a configuration, and the change that fits it") {
  const RunPlan plan = plan_of_two();
  const size_t needed = plan.run().bytes;
  const MemoryView plain = view_memory(plan.config(), 2, false, 0, "");
  CHECK(contains(plain.model, "; full_shard on 2 ranks"));
  CHECK(plain.planned.bytes == needed);
  CHECK(memory_json(plain).at("machine").get<std::string>() == nominal_rates().machine);
  CHECK(!plain.fitting);
  // A GPU's kernels take no scratch of the CPU's.
  CHECK(view_memory(plan.config(), 2, true, 0, "").planned.run->usage().scratch == 0);
  CHECK(plain.planned.run->usage().scratch > 0);
  CHECK(view_memory(plan.config(), 2, false, needed, "").fitting->fitting.empty());
  const MemoryView smaller = view_memory(plan.config(), 2, false, needed - 1, "");
  REQUIRE(smaller.fitting->fitting.size() == 1);
  CHECK(smaller.fitting->fitting[0].bytes < needed);
}

TEST_CASE("memory view: GPUs by name") {
  CHECK(gpu_names().size() == 8);
  const DeviceMemory one = gpu_memory("A100-80", 1), two = gpu_memory("A100-80", 2);
  CHECK(one.bytes > size_t{79} << 30);
  CHECK(one.nccl == 0);
  CHECK(two.left() < one.left());
  CHECK(contains(test::error_of([] { gpu_memory("A100", 1); }), "expected one of V100-16, "));
}

}  // namespace
}  // namespace fsdp::tools
