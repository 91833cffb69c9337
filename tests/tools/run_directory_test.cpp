// Making the folder of a run.
#include "tools/runtime/run_directory.h"

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
                       "cannot be made"));
}

TEST_CASE("run directory: one for all ranks, with what was run") {
  const test::TempFolder folder;
  std::vector<std::string> paths(3);
  comm::run_local_ranks(3, [&](comm::Communicator& world) {
    const auto path = make_run_directory(world, folder / "run", "name");
    write_run_arguments(world, path,
                        {.command = "train", .config = "c.yaml", .overrides = {"a=1"}});
    paths[static_cast<size_t>(world.rank())] = path.string();
  });
  CHECK(paths[0] == (folder / "run").string());
  CHECK(paths[1] == paths[0]);
  CHECK(paths[2] == paths[0]);
  const Json arguments = read_json_file(folder / "run/run_args.json");
  CHECK(arguments.at("world_size") == 3);
  CHECK(arguments.at("hosts").size() == 3);
  CHECK(arguments.at("set") == Json({"a=1"}));
}

}  // namespace
}  // namespace fsdp::tools
