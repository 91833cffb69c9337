// The parts of the page that are files of their own, compiled into the program by
// tools/cmake/EmbeddedFiles.cmake. Not here: the page that they are parts of (page.h).
#pragma once

#include <string_view>

namespace fsdp::tools {

std::string_view uplot_script();  // uplot/uPlot.iife.min.js
std::string_view uplot_style();   // uplot/uPlot.min.css
std::string_view page_script();   // page.js
std::string_view page_style();    // page.css

}  // namespace fsdp::tools
