// Parts of the page about one run: its memory, a step of its streams, its units and collectives.
// What the run lacks is one line. Not here: columns for several runs (comparison_sections.h),
// curves (page_data.h).
#pragma once

#include <string>

#include "tools/page/run_view.h"

namespace fsdp::tools {

// How many bytes of a part may still come, of all runs together. A picture or table that is larger
// is left out, which is said.
struct PageRoom {
  size_t bytes = 400'000;
  bool take(size_t wanted);
};

// HTML.
std::string memory_html(const RunView& run, PageRoom& room);
std::string timeline_html(const RunView& run, PageRoom& room);
std::string units_html(const RunView& run);
std::string collectives_html(const RunView& run);

}  // namespace fsdp::tools
