// What the page holds as JSON, for its layout and for programs that read pages. Read next: page.js,
// which makes the page of it. Not here: reading runs and sweeps (run_view.h, page.h).
#pragma once

#include <string>

#include "core/io/json.h"
#include "tools/page/page.h"

namespace fsdp::tools {

// Of a page. One run has 1000 points a curve.
constexpr size_t kMostPoints = 24'000;

// {"runs": [{"name", "folder", "state", "settings", "metrics", "step", "curves": {"loss": {"step":
// [...], "value": [...]}}, ...}], "sweeps": [{"folder", "table", "settings"}], "plans": [{"file",
// "plan", "svg"}], ...}. `now`: Unix time.
Json page_data(const RunsReport& report, double now);

// The picture of a plan's scaling. JsonError where the plan is of another version.
std::string plan_svg(const Json& plan);

// As the content of a script element: no text in it can end the element.
std::string script_text(const Json& json);

// The memory of a step: {"categories": [names], "moments": [[nanoseconds since the step began,
// bytes of each category]]}; null for a step without memory. The moments of one pixel are two: the
// one with most bytes, and the last one.
Json memory_json(const StepTimeline& step);

}  // namespace fsdp::tools
