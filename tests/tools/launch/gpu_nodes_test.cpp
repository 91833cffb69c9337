// The folder of a driver, as machines have it.
#include "tools/launch/gpu_nodes.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

TEST_CASE("GPUs: their NUMA nodes, by PCI address") {
  const test::TempFolder folder;
  CHECK(numa_nodes_of_gpus(folder.path()).empty());
  for (const char* device : {"0000:c1:00.0", "0000:0a:00.0", "module"}) {
    std::filesystem::create_directories(folder / "sys/bus/pci/drivers/nvidia" / device);
  }
  folder.write("sys/bus/pci/drivers/nvidia/0000:c1:00.0/numa_node", "1\n");
  folder.write("sys/bus/pci/drivers/nvidia/0000:0a:00.0/numa_node", "0\n");
  folder.write("sys/bus/pci/drivers/nvidia/module/version", "1\n");
  CHECK(numa_nodes_of_gpus(folder.path()) ==
        std::map<std::string, int>{{"0000:0a:00.0", 0}, {"0000:c1:00.0", 1}});
}

TEST_CASE("a GPU may be used where the driver has a file for it and nobody hides it") {
  const test::TempFolder folder;
  CHECK(!may_use_gpu(nullptr, folder.path()));  // no /dev at all
  std::filesystem::create_directory(folder / "dev");
  for (const char* other : {"nvidiactl", "nvidia-uvm", "nvidia", "nvidia-caps1"}) {
    folder.write(std::string("dev/") + other, "");
  }
  CHECK(!may_use_gpu(nullptr, folder.path()));
  folder.write("dev/nvidia12", "");
  for (const char* visible : {"0", "3,1", "GPU-5f3c", "MIG-GPU-1"}) {
    CHECK(may_use_gpu(visible, folder.path()));
  }
  CHECK(may_use_gpu(nullptr, folder.path()));
  for (const char* hidden : {"", "-1", "NoDevFiles", "none"}) {
    CHECK(!may_use_gpu(hidden, folder.path()));
  }
}

}  // namespace
}  // namespace fsdp::tools
