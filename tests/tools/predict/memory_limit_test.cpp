// The limit of a rank, and the refusal of a run that needs more.
// Requirements: S3.17.
#include "tools/predict/memory_limit.h"

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "core/text/byte_size.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

TEST_CASE("memory limit: what is given, and never more than there is") {
  const MemoryShare share = {
      .available = {.bytes = 1000 << 20, .source = "RAM"}, .ranks = 2, .overhead = 100 << 20};
  const MemoryLimit automatic = memory_limit("auto", share);
  CHECK(automatic.bytes == 400 << 20);
  CHECK(automatic.source ==
        "1000.00 MiB of RAM for 2 ranks, less 100.00 MiB for the program itself");
  CHECK(memory_limit("300MiB", share).bytes == 300 << 20);
  CHECK(memory_limit("300MiB", share).source == "runtime.memory_limit");
  CHECK(memory_limit("2GB", share).source == automatic.source);
  // The program alone is too large.
  const MemoryShare small = {.available = {.bytes = 10}, .ranks = 1, .overhead = 100};
  CHECK(memory_limit("auto", small).bytes == 0);
  CHECK(overhead_of_rank({.of_process = false}, 1) > overhead_of_rank({.of_process = false}, 4));
  // What the program holds has gone from it already.
  CHECK(overhead_of_rank({.is_left = true}, 1) == 32 << 20);
}

TEST_CASE("memory limit: a run that needs more is refused, with changes that make it fit") {
  const config::TrainConfig config = config::read_config(
      "", {"model.model_type=llama", "model.hidden_size=48", "model.layers=4", "model.heads=4",
           "data.train=[text.txt]", "data.sequence_length=64", "train.batch=8", "train.steps=3"});
  const RunPlan plan(config, 257, data_of(config, 1), 1, {});
  const size_t needed = plan.run().bytes;
  CHECK(refusal(plan, {.bytes = needed, .source = "x"}).empty());
  const std::string message = refusal(plan, {.bytes = needed - 1, .source = "x"});
  CHECK(message.starts_with(fmt::format("this run needs {} per rank, the limit is {} (x)\n",
                                        byte_size_text(needed), byte_size_text(needed - 1))));
  CHECK(test::contains(message, "\n  the peak is in "));
  CHECK(test::contains(message, "\n  fits with --set train.recompute.mode="));
  CHECK(test::contains(message, " (the same bits)"));
  CHECK(message.back() != '\n');
  CHECK(test::contains(refusal(plan, {.bytes = 1000, .source = "x"}),
                       "no change was found that makes it fit; the least: "));
}

TEST_CASE("memory limit: of a GPU, and of its host for what is offloaded") {
  const MemoryLimit limit = memory_limit(
      "80GiB", {.available = {.bytes = size_t{40} << 30, .source = "free memory of a GPU"},
                .ranks = 2,
                .overhead = kNcclBytes,
                .overhead_of = "NCCL"});
  CHECK(limit.source == "40.00 GiB of free memory of a GPU for 2 ranks, less 800.00 MiB for NCCL");
  CHECK(memory_limit("auto", {.available = {.bytes = 1 << 20, .source = "it"}}).source ==
        "1.00 MiB of it");
  const config::TrainConfig config =
      config::read_config("", {"model.model_type=llama", "model.hidden_size=48", "model.layers=4",
                               "model.heads=4", "data.train=[text.txt]", "data.sequence_length=64",
                               "train.batch=8", "train.steps=3", "fsdp.offload=optimizer"});
  const RunPlan plan(config, 257, data_of(config, 1), 1,
                     {.cuda = cuda::CudaOptions{}, .meta = meta::MetaOptions{}});
  const PlannedRun run = plan.run();
  const MemoryLimit device = {.bytes = run.bytes, .source = "x"};
  const size_t offloaded = run.run->host_needed();
  CHECK(refusal(plan, device, MemoryLimit{.bytes = offloaded, .source = "y"}).empty());
  CHECK(refusal(plan, device, MemoryLimit{.bytes = offloaded - 1, .source = "y"})
            .starts_with(fmt::format("what this run offloads needs {} of the host's memory per "
                                     "rank, the limit is ",
                                     byte_size_text(offloaded))));
  CHECK(test::contains(refusal(plan, {.bytes = run.bytes - 1, .source = "x"},
                               MemoryLimit{.bytes = offloaded, .source = "y"}),
                       "\n  fits with --set "));
}

}  // namespace
namespace {

TEST_CASE("rank limits: ranks of one process share the host's memory") {
  std::vector<MemoryLimit> alone(1), shared(3), given(3);
  const auto limits = [](std::vector<MemoryLimit>& out, const std::string& wanted) {
    const auto ranks = static_cast<int>(out.size());
    comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
      const RankContext rank = {
          .world = world, .backend = {}, .backend_note = "", .local_ranks = ranks};
      out[static_cast<size_t>(world.rank())] = limit_of_device(rank, wanted);
    });
  };
  limits(alone, "auto");
  limits(shared, "auto");
  limits(given, "1MiB");
  CHECK(shared[0].bytes > 0);
  CHECK(shared[0].bytes < alone[0].bytes);
  for (const size_t rank : {1, 2}) {
    CHECK(shared[rank].bytes == shared[0].bytes);
    CHECK(shared[rank].source == shared[0].source);
    CHECK(given[rank].bytes == 1 << 20);
  }
}

}  // namespace
}  // namespace fsdp::tools
