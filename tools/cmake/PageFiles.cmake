# The files of tools/page that are no C++ become texts in the program: build/page_files.cpp defines
# tools/page/page_files.h. Written when cmake runs, which a change of a file makes it do.
set(page_functions uplot_script uplot_style page_script page_style)
set(page_paths uplot/uPlot.iife.min.js uplot/uPlot.min.css page.js page.css)
set(page_source "// Written by the build.\n#include \"tools/page/page_files.h\"\n\nnamespace fsdp::tools {\n")
foreach(function path IN ZIP_LISTS page_functions page_paths)
  set(path ${PROJECT_SOURCE_DIR}/tools/page/${path})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(READ ${path} content)
  string(APPEND page_source
    "std::string_view ${function}() {\n  return R\"page_file(${content})page_file\";\n}\n")
endforeach()
string(APPEND page_source "}  // namespace fsdp::tools\n")
fsdp_written_source(fsdp_tools_page page_files.cpp "${page_source}")
