# Which commit a program was built from, for reports: build/commit.cpp defines source_commit()
# (tools/report/source_commit.h). Looked up at every build, written only when it has changed.
# As a module it adds the target; run as a script (cmake -P) it writes the file.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  find_package(Git QUIET)
  set(commit_source ${PROJECT_BINARY_DIR}/commit.cpp)
  add_custom_target(fsdp_commit
    COMMAND ${CMAKE_COMMAND} -DGIT=${GIT_EXECUTABLE} -DSOURCE=${PROJECT_SOURCE_DIR}
            -DOUTPUT=${commit_source} -P ${CMAKE_CURRENT_LIST_FILE}
    BYPRODUCTS ${commit_source}
    COMMENT "")
  target_sources(fsdp_tools_report PRIVATE ${commit_source})
  add_dependencies(fsdp_tools_report fsdp_commit)
  return()
endif()

cmake_minimum_required(VERSION 3.22)
set(commit "unknown")
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(described)
    set(commit ${described})
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT "// Written by the build.
#include \"tools/report/source_commit.h\"

namespace fsdp::tools {
std::string source_commit() { return \"${commit}\"; }
}  // namespace fsdp::tools
")
