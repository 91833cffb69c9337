// What fsdp memory prints.
// Requirements: S2.6.
#include "tools/predict/memory_view.h"

#include <doctest/doctest.h>

#include "core/text/byte_size.h"
#include "tests/support/temp_folder.h"
#include "tools/predict/machines.h"

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
  for (const meta::LoggedBlock& block : view.planned.run->blocks_then()) {
    there += block.bytes;
    // What belongs to a unit says so, that of the root too; buffers are shared by units in turn.
    CAPTURE(block.bytes);
    const bool of_unit = block.category == MemoryCategory::kParameterShard ||
                         block.category == MemoryCategory::kOptimizerState;
    if (of_unit && block.bytes > kAllocationGranularity) CHECK(!block.unit.empty());
  }
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
  view.fitting = plan.changes_that_fit(needed - 1, 1);
  CHECK(contains(format_memory_view(view), "\nfits with --set "));
  CHECK(memory_json(view).at("fits_with").size() == 1);
  view.fitting = plan.changes_that_fit(1000, 1);
  CHECK(contains(format_memory_view(view),
                 "\nno setting was found that fits; the one that needs least: "));
  CHECK(memory_json(view).at("fits_with").size() == 0);
}

TEST_CASE("memory view: of a configuration, and the change that fits it") {
  const RunPlan plan = plan_of_two();
  const size_t needed = plan.run().bytes;
  const auto view = [&](std::optional<DeviceMemory> device) {
    return view_memory(plan.config(), {.ranks = 2, .device = std::move(device)});
  };
  const MemoryView plain = view(std::nullopt);
  CHECK(contains(plain.model, "; full_shard on 2 ranks, 1 thread of the CPU each"));
  CHECK(plain.planned.bytes == needed);
  CHECK(plain.planned.run->usage().scratch > 0);
  CHECK(memory_json(plain).at("machine").get<std::string>() ==
        machine_rates(kUsualMachine).machine);
  CHECK(!plain.fitting);
  CHECK(!view(DeviceMemory{.name = "it", .bytes = needed}).fitting);
  const MemoryView smaller = view(DeviceMemory{.name = "it", .bytes = needed - 1});
  REQUIRE(smaller.fitting->fitting.size() == 1);
  CHECK(smaller.fitting->fitting[0].bytes < needed);
}

TEST_CASE("memory view: a GPU is judged by what a GPU takes, in its own time") {
  const RunPlan plan = plan_of_two();
  const auto on = [&](const DeviceMemory& device) {
    return view_memory(plan.config(), {.ranks = 2, .device = device});
  };
  const MemoryView h100 = on(gpu_memory("H100", 2)), v100 = on(gpu_memory("V100-32", 2));
  CHECK(h100.planned.run->usage().scratch == 0);  // of the CPU's kernels
  CHECK(h100.machine == "an H100, eight in a machine");
  CHECK(h100.planned.run->step_ms() < v100.planned.run->step_ms());
  const DeviceMemory room = gpu_of_size(size_t{2} << 30, 2);
  CHECK(on(room).planned.run->usage().scratch == 0);
  CHECK(contains(format_memory_view(on(room)),
                 "\nfits barely: 2.00 GiB of a GPU, less 600.00 MiB for "));
  CHECK(memory_json(on(room)).at("verdict").at("barely").get<bool>());
  CHECK(contains(format_memory_view(h100), "\nfits: "));
  CHECK(contains(format_memory_view(h100),
                 ", of which cuDNN's attention may take 2.47 GiB (assumed)\n"));
  // Less than the context takes.
  CHECK(on(gpu_of_size(size_t{1} << 20, 2)).fitting->fitting.empty());
  const DeviceMemory little = gpu_of_size(room.context + room.nccl + h100.planned.bytes - 1, 2);
  const MemoryView tight = on(little);
  REQUIRE(tight.fitting->fitting.size() == 1);
  CHECK(tight.fitting->fitting[0].bytes < h100.planned.bytes);
}

// Passes of 16 sequences on each rank: the sums of dq, and as much in a plan of cuDNN.
TEST_CASE("memory view: attention in any order has its workspace counted, within cuDNN's limit") {
  config::TrainConfig config = plan_of_two().config();
  config.train.dtype = DType::kBF16;
  config.train.batch = 32;
  config.train.steps = 1;
  config.model.hidden_size = 4096;
  config.data.sequence_length = 4096;
  const auto workspace = [&](bool deterministic, const DeviceMemory& device) {
    config.train.attention_deterministic = deterministic;
    const MemoryView view = view_memory(config, {.ranks = 2, .device = device});
    CHECK(contains(format_memory_view(view), "cuDNN's attention may take") == deterministic);
    return view.planned.run->usage().peak[static_cast<size_t>(MemoryCategory::kWorkspace)];
  };
  const size_t sums = size_t{4} * 16 * 4096 * 4096;
  const DeviceMemory h100 = gpu_memory("H100", 2), small = gpu_of_size(size_t{31} << 30, 2);
  CHECK(workspace(true, h100) < sums);
  for (const auto& [device, bytes] : {std::pair{h100, 2 * sums}, {small, size_t{1} << 30}}) {
    const size_t counted = workspace(false, device);
    CHECK(counted > bytes);
    CHECK(counted < bytes + (size_t{32} << 20));  // with what lies beside it
  }
}

TEST_CASE("memory view: what is offloaded, of each change and of a node") {
  config::TrainConfig config = plan_of_two().config();
  config.fsdp.options.offload = comm::Offload::kNvme;
  config.fsdp.offload_folder = ".";
  const MemoryView view = view_memory(config, {.ranks = 2, .device = gpu_memory("H100", 2)});
  const MetaRun& run = *view.planned.run;
  REQUIRE(run.file_needed() > 0);
  CHECK(contains(
      format_memory_view(view),
      fmt::format("\na node of 2 ranks must have {} of memory for what is offloaded, and "
                  "{} of its disk\n",
                  byte_size_text(2 * run.host_needed()), byte_size_text(2 * run.file_needed()))));
  bool none = false, host = false, file = false;
  for (const Alternative& each : view.alternatives) {
    if (each.change.text() == "fsdp.offload=none") none = each.host + each.file == 0;
    if (each.change.text() == "fsdp.offload=all") host = each.host > 0 && each.file == 0;
    if (each.change.text() == "train.recompute.mode=full") file = each.file == run.file_needed();
  }
  CHECK(none);
  CHECK(host);
  CHECK(file);
}

TEST_CASE("memory view: GPUs by name") {
  const DeviceMemory one = gpu_memory("A100-80", 1), two = gpu_memory("A100-80", 2);
  CHECK(one.bytes > size_t{79} << 30);
  CHECK(one.nccl == 0);
  CHECK(two.left() < one.left());
  CHECK(contains(test::error_of([] { gpu_memory("A100", 1); }), "expected one of V100-16, "));
}

}  // namespace
}  // namespace fsdp::tools
