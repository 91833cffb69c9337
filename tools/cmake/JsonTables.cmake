# fsdp_json_tables(target namespace file...): tables that are data become values in the program. For
# each FILE, ROOM/NAME.json, a source of the target that is written when cmake runs defines
#   const Json& NAMESPACE::NAME_json();
# The .cpp file that reads the table declares this function.
function(fsdp_json_tables target namespace)
  set(source "// Written by the build.\n#include \"core/io/json.h\"\n\nnamespace ${namespace} {\n")
  foreach(file IN LISTS ARGN)
    get_filename_component(name ${file} NAME_WE)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${file})
    file(READ ${PROJECT_SOURCE_DIR}/${file} content)
    string(APPEND source "\nconst fsdp::Json& ${name}_json() {\n  static const fsdp::Json table = \
fsdp::parse_json(R\"json(${content})json\", \"${file}\");\n  return table;\n}\n")
  endforeach()
  string(APPEND source "\n}  // namespace ${namespace}\n")
  fsdp_written_source(${target} ${target}_tables.cpp "${source}")
endfunction()

set(adopt_tables accelerate axolotl chess deepspeed environment fairseq fsdp
                 hugging_face llama_factory)
list(TRANSFORM adopt_tables PREPEND tools/guides/adopt/tables/)
list(TRANSFORM adopt_tables APPEND .json)
fsdp_json_tables(fsdp_tools_guides fsdp::adopt ${adopt_tables})
fsdp_json_tables(fsdp_models fsdp::models models/ignored_keys.json models/families/families.json)
fsdp_json_tables(fsdp_tools_data_tokenizer fsdp::data tools/data/tokenizer/ignored_keys.json
                 tools/data/tokenizer/tokenizer_classes.json)
