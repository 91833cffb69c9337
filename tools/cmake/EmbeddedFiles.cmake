# Files that are data become part of the program: a source in the build folder, written when cmake
# runs, which a change of such a file makes it do. A source that has its content already is left
# alone, so that nothing is compiled again.
# Not here: which commit the program is of (Commit.cmake).

function(fsdp_written_source target name content)
  set(output ${PROJECT_BINARY_DIR}/${name})
  set(written "")
  if(EXISTS ${output})
    file(READ ${output} written)
  endif()
  if(NOT written STREQUAL content)
    file(WRITE ${output} "${content}")
  endif()
  target_sources(${target} PRIVATE ${output})
endfunction()

function(fsdp_embedded_content file out)
  set(path ${PROJECT_SOURCE_DIR}/${file})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(READ ${path} content)
  set(${out} "R\"embedded(${content})embedded\"" PARENT_SCOPE)
endfunction()

# fsdp_embedded_texts(target header function file ...): defines, for each pair,
#   std::string_view FUNCTION();
# in namespace fsdp::tools, as HEADER, a header of the target's room, declares it.
function(fsdp_embedded_texts target header)
  set(source "// Written by the build.\n#include \"${header}\"\n\nnamespace fsdp::tools {\n")
  while(ARGN)
    list(POP_FRONT ARGN function file)
    fsdp_embedded_content(${file} content)
    string(APPEND source "\nstd::string_view ${function}() { return ${content}; }\n")
  endwhile()
  fsdp_written_source(${target} ${target}_texts.cpp "${source}\n}  // namespace fsdp::tools\n")
endfunction()

# fsdp_json_tables(target namespace file ...): defines, for each file ROOM/NAME.json,
#   const Json& NAMESPACE::NAME_json();
# The .cpp file that reads the table declares this function.
function(fsdp_json_tables target namespace)
  set(source "// Written by the build.\n#include \"core/io/json.h\"\n\nnamespace ${namespace} {\n")
  foreach(file IN LISTS ARGN)
    get_filename_component(name ${file} NAME_WE)
    fsdp_embedded_content(${file} content)
    string(APPEND source "\nconst fsdp::Json& ${name}_json() {\n  static const fsdp::Json table = \
fsdp::parse_json(${content}, \"${file}\");\n  return table;\n}\n")
  endforeach()
  fsdp_written_source(${target} ${target}_tables.cpp "${source}\n}  // namespace ${namespace}\n")
endfunction()

fsdp_embedded_texts(fsdp_tools_commands tools/commands/options.h
  commands_json tools/commands/commands.json)
fsdp_embedded_texts(fsdp_tools_jobs tools/jobs/batch_file.h
  slurm_job_text tools/jobs/slurm_job.sh.in)
fsdp_embedded_texts(fsdp_tools_page tools/page/page_files.h
  uplot_script tools/page/uplot/uPlot.iife.min.js
  uplot_style tools/page/uplot/uPlot.min.css
  page_script tools/page/page.js
  page_style tools/page/page.css)
fsdp_embedded_texts(fsdp_tools_predict tools/predict/machine_files.h
  gpu_table tools/predict/machines/gpus.json
  program_table tools/predict/machines/programs.json
  published_formulas tools/predict/formulas/published.json)
set(adopt_tables accelerate axolotl chess deepspeed environment fairseq fsdp hugging_face llama_factory)
list(TRANSFORM adopt_tables PREPEND tools/guides/adopt/tables/)
list(TRANSFORM adopt_tables APPEND .json)
fsdp_json_tables(fsdp_tools_guides fsdp::adopt ${adopt_tables})
fsdp_json_tables(fsdp_models fsdp::models models/ignored_keys.json models/families/families.json)
fsdp_json_tables(fsdp_tools_data_tokenizer fsdp::data tools/data/tokenizer/ignored_keys.json
                 tools/data/tokenizer/tokenizer_classes.json)

# Machines of tools/predict: machine_files() of machine_files.h lists the files of rates by name.
set(machines V100-16 V100-32 L40 A100-40 A100-80 DGX-A100 H100 H100-cublaslt H100-EFA H100-500W H200 B200 cpu)
set(source "// Written by the build.\n#include \"tools/predict/machine_files.h\"\n\n\
namespace fsdp::tools {\n\nstd::vector<MachineFile> machine_files() {\n  return {\n")
foreach(machine IN LISTS machines)
  fsdp_embedded_content(tools/predict/machines/${machine}.json content)
  string(APPEND source "      {\"${machine}\", ${content}},\n")
endforeach()
fsdp_written_source(fsdp_tools_predict machine_files.cpp "${source}  };\n}\n\n}  // namespace fsdp::tools\n")
