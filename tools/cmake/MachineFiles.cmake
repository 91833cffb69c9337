# The files of rates in tools/predict/machines, the tables of GPUs and of other programs, and the published
# formulas become texts in the program: build/machine_files.cpp defines tools/predict/machine_files.h. The
# file is written when cmake runs, which a change of a file makes it do.
set(machines V100-16 V100-32 L40 A100-40 A100-80 DGX-A100 H100 H100-cublaslt H100-EFA H100-500W H200 B200 cpu)
set(table_functions gpu_table program_table published_formulas)
set(table_paths machines/gpus.json machines/programs.json formulas/published.json)
set(machine_source "// Written by the build.\n#include \"tools/predict/machine_files.h\"\n\n\
namespace fsdp::tools {\n\nstd::vector<MachineFile> machine_files() {\n  return {\n")
foreach(machine IN LISTS machines)
  set(path ${PROJECT_SOURCE_DIR}/tools/predict/machines/${machine}.json)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(READ ${path} content)
  string(APPEND machine_source "      {\"${machine}\", R\"machine_file(${content})machine_file\"},\n")
endforeach()
string(APPEND machine_source "  };\n}\n\n")
foreach(function path IN ZIP_LISTS table_functions table_paths)
  set(path ${PROJECT_SOURCE_DIR}/tools/predict/${path})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(READ ${path} content)
  string(APPEND machine_source
    "std::string_view ${function}() {\n  return R\"machine_file(${content})machine_file\";\n}\n\n")
endforeach()
string(APPEND machine_source "}  // namespace fsdp::tools\n")
fsdp_written_source(fsdp_tools_predict machine_files.cpp "${machine_source}")
