// Run directories side by side: what was set differently, and how the results differ.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/report/case_table.h"

namespace fsdp::tools {

// A table of several lines, a column for each run. Of two runs it says by how many percent the
// second differs, of more by which factor each differs from the first. Error when there are fewer
// than two, or a folder is not there or is not the directory of a run. Of one that has not ended
// the table has what is known so far, and "running", "killed" or "failed" for the rest.
std::string compare_runs(const std::vector<std::filesystem::path>& folders);

// The runs as rows, with some columns of run_columns.h (none: the usual ones). The first run is the
// baseline. The same errors.
CaseTable table_of_runs(const std::vector<std::filesystem::path>& folders,
                        const std::vector<std::string>& columns);

}  // namespace fsdp::tools
