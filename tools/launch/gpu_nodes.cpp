// Contract: tools/launch/gpu_nodes.h.
#include "tools/launch/gpu_nodes.h"

#include <cstdlib>

#include "core/io/file.h"

namespace fsdp::tools {

std::map<std::string, int> numa_nodes_of_gpus(const std::filesystem::path& root) {
  std::map<std::string, int> nodes;
  std::error_code absent;
  const std::filesystem::path driver = root / "sys/bus/pci/drivers/nvidia";
  for (const auto& entry : std::filesystem::directory_iterator(driver, absent)) {
    const std::filesystem::path file = entry.path() / "numa_node";
    if (is_there(file)) nodes[entry.path().filename()] = std::atoi(read_file(file).c_str());
  }
  return nodes;
}

}  // namespace fsdp::tools
