// Parts of the page with a column for each run: how they ended, what was lost, what was set. Not
// here: what is shown of each run for itself (run_sections.h).
#pragma once

#include <string>
#include <vector>

#include "tools/page/run_view.h"

namespace fsdp::tools {

// HTML. `now`: Unix time.
std::string outcome_html(const std::vector<RunView>& runs, double now);
std::string costs_html(const std::vector<RunView>& runs);
std::string settings_html(const std::vector<RunView>& runs);

}  // namespace fsdp::tools
