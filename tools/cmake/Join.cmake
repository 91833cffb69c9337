# fsdp_join: up to eight sources of a target are compiled as one, which takes a third of the time of a whole build away:
# their headers are read once. A change of one recompiles all eight: -DFSDP_JOIN=OFF (make JOIN=OFF) compiles each alone.
# Sources whose own names clash stay alone: the lists below. The compiler refuses a clash. tests/e2e/joined_sources.sh
# finds a name that one source could take from another without a word.
# Not CMake's UNITY_BUILD, whose files name their sources with the folder of this clone, so that a compiler cache would
# not know them in another one.
option(FSDP_JOIN "compile up to eight sources as one" ON)
set(FSDP_JOINED_SOURCES 8)
# Alike by design, with the same names in their anonymous namespaces; sources that the emulator, or a program with other
# link options, replaces as members of their library; then single ones.
file(GLOB apart RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS models/families/*.cpp tools/guides/adopt/*.cpp
     tests/tools/guides/adopt/*.cpp tests/tools/config/*.cpp tests/kernels/*.cpp tests/kernels/cuda/*.cpp comm/nccl_*.cpp
     comm/communicator.cpp comm/host_collectives.cpp tests/support/io_faults.cpp)
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/apart.txt names REGEX "^[^#]")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/apart.txt)
set(FSDP_APART ${apart} ${names})

# After the sources have their properties. By folder, so that a source that comes or goes changes the groups of its folder
# alone. A group of one is its source.
function(fsdp_join target)
  if(NOT FSDP_JOIN)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  set(joined "")
  set(groups "")
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE path)
    cmake_path(IS_PREFIX PROJECT_BINARY_DIR ${path} is_made)
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    if(path IN_LIST FSDP_APART OR options OR definitions OR is_made OR NOT path MATCHES "\\.cpp$")
      list(APPEND joined ${source})
      continue()
    endif()
    cmake_path(GET path PARENT_PATH folder)
    string(REPLACE "/" "_" folder ${folder})
    if(NOT DEFINED count_of_${folder})
      set(count_of_${folder} 0)
    endif()
    math(EXPR group "${count_of_${folder}} / ${FSDP_JOINED_SOURCES}")
    math(EXPR count_of_${folder} "${count_of_${folder}} + 1")
    list(APPEND groups ${folder}_${group})
    list(APPEND members_of_${folder}_${group} ${path})
  endforeach()
  list(REMOVE_DUPLICATES groups)
  foreach(group IN LISTS groups)
    list(LENGTH members_of_${group} count)
    if(count EQUAL 1)
      list(APPEND joined ${PROJECT_SOURCE_DIR}/${members_of_${group}})
      continue()
    endif()
    list(TRANSFORM members_of_${group} REPLACE "(.+)" "#include \"\\1\"")
    list(JOIN members_of_${group} "\n" text)
    set(file ${PROJECT_BINARY_DIR}/joined/${target}/${group}.cpp)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text}\n")
    list(APPEND joined ${file})
  endforeach()
  set_property(TARGET ${target} PROPERTY SOURCES ${joined})
endfunction()
