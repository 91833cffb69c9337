// Paths that begin with ~, where no shell has replaced it: in a YAML file, behind --set KEY= or
// --option=.
#pragma once

#include <string>

namespace fsdp::config {

// "~/texts" -> "/home/ada/texts" by the environment's HOME; another user's, "~bob/texts", and every
// other text as they are.
std::string with_home(const std::string& path);

}  // namespace fsdp::config
