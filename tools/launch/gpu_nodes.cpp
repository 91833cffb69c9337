// Contract: tools/launch/gpu_nodes.h.
#include "tools/launch/gpu_nodes.h"

#include <cstdlib>
#include <string_view>

#include <unistd.h>

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

bool may_use_gpu(const char* visible, const std::filesystem::path& root) {
  // CUDA takes the GPUs that are named before the first name of none: "", "-1", "NoDevFiles".
  const std::string_view first = visible ? visible : "0";
  if (first.find_first_of("0123456789") != 0 && !first.starts_with("GPU-") &&
      !first.starts_with("MIG-")) {
    return false;
  }
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(root / "dev", absent)) {
    const std::string name = entry.path().filename();  // nvidia0, but not nvidiactl
    if (name.starts_with("nvidia") && name.size() > 6 &&
        name.find_first_not_of("0123456789", 6) == name.npos &&
        ::access(entry.path().c_str(), R_OK | W_OK) == 0) {
      return true;
    }
  }
  return false;
}

}  // namespace fsdp::tools
