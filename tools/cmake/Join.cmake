# fsdp_join: up to eight sources of a target are compiled as one, which halves the time of a whole build: their headers
# are read once. A change of one of them recompiles all eight: -DFSDP_JOIN=OFF (make JOIN=OFF) compiles each alone.
# Sources whose own names clash stay alone: the list below. A clash is an error of the compiler, never a silent change.
option(FSDP_JOIN "compile up to eight sources as one" ON)
set(FSDP_JOINED_SOURCES 8)
# Alike by design, with the same names in their anonymous namespaces; sources that the emulator, or a program with other
# link options, replaces as members of their library; then single ones.
file(GLOB apart CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/models/families/*.cpp ${PROJECT_SOURCE_DIR}/tools/guides/adopt/*.cpp
     ${PROJECT_SOURCE_DIR}/tests/tools/guides/adopt/*.cpp ${PROJECT_SOURCE_DIR}/tests/tools/config/*.cpp
     ${PROJECT_SOURCE_DIR}/tests/kernels/*.cpp ${PROJECT_SOURCE_DIR}/tests/kernels/cuda/*.cpp
     ${PROJECT_SOURCE_DIR}/comm/nccl_*.cpp ${PROJECT_SOURCE_DIR}/comm/communicator.cpp
     ${PROJECT_SOURCE_DIR}/comm/host_collectives.cpp ${PROJECT_SOURCE_DIR}/tests/support/io_faults.cpp)
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/apart.txt names REGEX "^[^#]")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/apart.txt)
list(TRANSFORM names PREPEND ${PROJECT_SOURCE_DIR}/)
set_source_files_properties(${apart} ${names} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)

# By folder, so that a source that comes or goes changes the groups of its folder alone.
function(fsdp_join target)
  if(NOT FSDP_JOIN)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    get_source_file_property(alone ${source} SKIP_UNITY_BUILD_INCLUSION)
    if(alone OR NOT source MATCHES "\\.cpp$")
      continue()
    endif()
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    cmake_path(GET folder PARENT_PATH folder)
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    math(EXPR group "0${${folder}_count} / ${FSDP_JOINED_SOURCES}")
    math(EXPR ${folder}_count "0${${folder}_count} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${group})
  endforeach()
endfunction()
