# tools/commands/commands.json becomes a text in the program: build/commands_json.cpp defines
# commands_json() of tools/commands/options.h. Written when cmake runs, which a change of the file
# makes it do.
set(path ${PROJECT_SOURCE_DIR}/tools/commands/commands.json)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
file(READ ${path} content)
fsdp_written_source(fsdp_tools_commands commands_json.cpp "// Written by the build.\n\
#include \"tools/commands/options.h\"\n\nnamespace fsdp::tools {\n\n\
std::string_view commands_json() {\n  return R\"commands_file(${content})commands_file\";\n}\n\n\
}  // namespace fsdp::tools\n")
