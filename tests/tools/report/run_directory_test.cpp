// Making the folder of a run.
// Requirements: S3.9.
#include "tools/report/run_directory.h"

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "core/io/json.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

TEST_CASE("run directory: never one that is there already") {
  const test::TempFolder folder;
  CHECK(create_numbered(folder / "a/b/run") == folder / "a/b/run");
  CHECK(create_numbered(folder / "a/b/run") == folder / "a/b/run-2");
  CHECK(create_numbered(folder / "a/b/run/") == folder / "a/b/run-3");
  folder.write("file", "x");
  CHECK(test::contains(test::error_of([&] { create_numbered(folder / "file/run"); }),
                       "runtime.run_dir: "));
}

TEST_CASE("run directory: one that was asked for and is there, and a disk that is full") {
  const test::TempFolder folder;
  const auto refusal = [&](const std::filesystem::path& path, int64_t bytes) {
    return test::error_of([&] { check_run_directory(path, bytes); });
  };
  const std::string taken =
      fmt::format("runtime.run_dir: {} is there already; give another one", folder.path().string());
  CHECK(refusal(folder.path(), 1) == taken + ", or --resume auto, which starts in an empty folder");
  std::filesystem::create_directory(folder / "lost+found");  // of a fresh volume
  CHECK(test::contains(refusal(folder.path(), 1), "--resume auto"));
  CHECK(refusal(folder.write("file", "x"), 1).ends_with("is there already; give another one"));
  CHECK(refusal(folder.path(), 1) == taken);
  std::string made;
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    const std::string error =
        test::error_of([&] { make_run_directory(world, folder.path().string() + "/", "name"); });
    if (world.rank() == 0) made = error;
  });
  CHECK(test::contains(made, taken));
  CHECK(refusal(folder / "a/b", 1) == "");
  CHECK(refusal("", 1) == "");
  CHECK(!std::filesystem::exists(folder / "a"));
  const std::string full = refusal(folder / "a/b", int64_t{1} << 62);
  CHECK(full.starts_with(fmt::format("runtime.run_dir: {}: ", folder.path().string())));
  CHECK(full.ends_with("are free; the trained model needs 4294967296.00 GiB"));
}

TEST_CASE("run directory: one for all ranks, with what was run") {
  const test::TempFolder folder;
  std::vector<std::string> paths(3);
  comm::run_local_ranks(3, [&](comm::Communicator& world) {
    const auto path = make_run_directory(world, folder / "run", "name");
    write_run_arguments(
        world, path,
        {.command = "train",
         .config = "c.yaml",
         .overrides = {"a=1"},
         .job = BatchJob{.id = "13", .array = "12", .task = "3", .nodes = "n[0-1]", .restarts = 2},
         .facts = {.sharding_strategy = "full_shard", .subset_size = 9}});
    paths[static_cast<size_t>(world.rank())] = path.string();
  });
  CHECK(paths[0] == (folder / "run").string());
  CHECK(paths[1] == paths[0]);
  CHECK(paths[2] == paths[0]);
  const Json arguments = read_json_file(folder / "run/run_args.json");
  CHECK(arguments.at("world_size") == 3);
  CHECK(arguments.at("hosts").size() == 3);
  CHECK(arguments.at("set") == Json({"a=1"}));
  CHECK(arguments.at("slurm") == Json({{"job_id", "13"},
                                       {"nodes", "n[0-1]"},
                                       {"restarts", 2},
                                       {"array_job_id", "12"},
                                       {"array_task_id", "3"}}));
  // The arguments of the Mistral guide's scripts, by their names.
  for (const char* key :
       {"model", "dataset", "run_name", "max_steps", "seq_len", "bsz", "grad_accum", "lr", "seed",
        "bf16", "use_lora", "gradient_checkpointing", "cpu", "gpu", "gpu0"}) {
    CAPTURE(key);
    CHECK(arguments.contains(key));
  }
  CHECK(arguments.at("sharding_strategy") == "full_shard");
  CHECK(arguments.at("subset_size") == 9);
}

}  // namespace
}  // namespace fsdp::tools
