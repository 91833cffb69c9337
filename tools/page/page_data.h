// What the page holds as JSON, for its curves and for programs that read pages. Read next:
// page.js, which draws it. Not here: the tables (run_sections.h, comparison_sections.h).
#pragma once

#include <string>
#include <vector>

#include "core/io/json.h"
#include "tools/page/run_view.h"
#include "tools/page/sweep_view.h"

namespace fsdp::tools {

// Of a page. One run has 1000 points a curve.
constexpr size_t kMostPoints = 24'000;

// {"runs": [{"name", "folder", "metrics", "curves": {"loss": {"step": [...], "value": [...]}}}],
// "sweeps": [{"folder", "table", "scaling": [{"name", "ranks", "speed_up", "cases"}], "ideal"}]}
Json page_data(const std::vector<RunView>& runs, const std::vector<SweepView>& sweeps);

// As the content of a script element: no text in it can end the element.
std::string script_text(const Json& json);

// The curves that are drawn, a place for each of them, and what is left out of them, as HTML.
std::string curves_html(const std::vector<RunView>& runs);

}  // namespace fsdp::tools
