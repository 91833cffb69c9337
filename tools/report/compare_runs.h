// Run directories side by side: what was set differently, and how the results differ.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fsdp::tools {

// A table of several lines, a column for each run. Of two runs it says by how many percent the
// second differs, of more by which factor each differs from the first. Error when there are fewer
// than two, or a folder is not there or is not the directory of a run that has ended.
std::string compare_runs(const std::vector<std::filesystem::path>& folders);

}  // namespace fsdp::tools
