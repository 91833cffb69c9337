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

}  // namespace
}  // namespace fsdp::tools
