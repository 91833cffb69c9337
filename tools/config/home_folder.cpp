// Contract: tools/config/home_folder.h.
#include "tools/config/home_folder.h"

#include <cstdlib>

namespace fsdp::config {

std::string with_home(const std::string& path) {
  const bool own = path == "~" || path.starts_with("~/");
  const char* const home = own ? std::getenv("HOME") : nullptr;
  return home == nullptr ? path : home + path.substr(1);
}

}  // namespace fsdp::config
