// Two run directories side by side: what was set differently, and what came of it.
#pragma once

#include <filesystem>
#include <string>

namespace fsdp::tools {

// A table of several lines. Error when a folder is not there or is not the directory of a run that
// has ended.
std::string compare_runs(const std::filesystem::path& first, const std::filesystem::path& second);

}  // namespace fsdp::tools
