// The smallest limit wins, whichever version of control groups says it.
#include "tools/launch/available_memory.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

void write(const test::TempFolder& root, const std::string& path, const std::string& text) {
  std::filesystem::create_directories((root / path).parent_path());
  root.write(path, text);
}

TEST_CASE("available memory: RAM alone") {
  const test::TempFolder root;
  write(root, "proc/meminfo", "MemTotal:        2048 kB\nMemFree:  1 kB\n");
  const AvailableMemory memory = available_memory(root / "", std::nullopt);
  CHECK(memory.bytes == 2 * kMiB);
  CHECK(memory.source == "RAM");
  CHECK(!memory.is_left);
}

TEST_CASE("available memory: of the RAM what nobody holds now, if it is known") {
  const test::TempFolder root;
  write(root, "proc/meminfo",
        "MemTotal:        4096 kB\nMemFree:  1 kB\nMemAvailable:    3072 kB\n");
  const AvailableMemory memory = available_memory(root / "", std::nullopt);
  CHECK(memory.bytes == 3 * kMiB);
  CHECK(memory.source == "available RAM");
  CHECK(memory.is_left);
  CHECK(!available_memory(root / "", kMiB).is_left);
  CHECK(available_memory(root / "", std::nullopt, Ram::kAll).bytes == 4 * kMiB);
}

TEST_CASE("available memory: control groups of version 2, the one around it too") {
  const test::TempFolder root;
  write(root, "proc/meminfo", "MemTotal:        1048576 kB\n");
  write(root, "proc/self/cgroup", "0::/a/b\n");
  write(root, "sys/fs/cgroup/a/b/memory.max", "max\n");
  CHECK(available_memory(root / "", std::nullopt).source == "RAM");
  write(root, "sys/fs/cgroup/a/memory.max", "629145600\n");
  const AvailableMemory memory = available_memory(root / "", std::nullopt);
  CHECK(memory.bytes == 600 * kMiB);
  CHECK(memory.source == "memory.max of the control group /a");
  CHECK(!memory.of_process);
}

TEST_CASE("available memory: control groups of version 1, and a container's own mount") {
  const test::TempFolder root;
  write(root, "proc/meminfo", "MemTotal:        1048576 kB\n");
  write(root, "proc/self/cgroup", "12:cpuset:/x\n4:memory:/docker/1234\n");
  write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "104857600\n");
  const AvailableMemory memory = available_memory(root / "", std::nullopt);
  CHECK(memory.bytes == 100 * kMiB);
  CHECK(memory.source == "memory.limit_in_bytes of the control group /");
}

TEST_CASE("available memory: the limit of addresses is every process's own") {
  const test::TempFolder root;
  write(root, "proc/meminfo", "MemTotal:        1048576 kB\n");
  CHECK(available_memory(root / "", size_t{1} << 40).source == "RAM");
  const AvailableMemory memory = available_memory(root / "", 50 * kMiB);
  CHECK(memory.bytes == 50 * kMiB);
  CHECK(memory.source == "ulimit -v");
  CHECK(memory.of_process);
  CHECK(available_memory().bytes > 16 * kMiB);  // of this machine
}

}  // namespace
}  // namespace fsdp::tools
