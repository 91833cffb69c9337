# fsdp_layer, fsdp_choose, fsdp_link: one static library `fsdp_<folder>` per folder.
# A folder without sources yet becomes an INTERFACE library, so that the edges stay the same.
# Used by CMakeLists.txt, where the edges stand.

# fsdp_layer(folder [DEPENDS folders] [EXCLUDE path regexes]): all .cpp below the folder.
function(fsdp_layer folder)
  cmake_parse_arguments(PARSE_ARGV 1 layer "" "" "DEPENDS;EXCLUDE")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
       ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
  foreach(regex IN LISTS layer_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "^${regex}")
  endforeach()
  set(depends ${layer_DEPENDS})
  list(TRANSFORM depends PREPEND fsdp_)
  if(sources)
    add_library(fsdp_${folder} STATIC ${sources})
    target_include_directories(fsdp_${folder} PUBLIC ${PROJECT_SOURCE_DIR})
    target_link_libraries(fsdp_${folder} PUBLIC ${depends})
  else()
    add_library(fsdp_${folder} INTERFACE)
    target_include_directories(fsdp_${folder} INTERFACE ${PROJECT_SOURCE_DIR})
    target_link_libraries(fsdp_${folder} INTERFACE ${depends})
  endif()
endfunction()

# fsdp_choose(folder condition sources ELSE stubs): adds the first glob when the variable
# `condition` is true (without files named *_absent.cpp), the second otherwise.
function(fsdp_choose folder condition present keyword stub)
  set(pattern ${stub})
  if(${condition})
    set(pattern ${present})
  endif()
  file(GLOB chosen CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${pattern})
  if(${condition})
    list(FILTER chosen EXCLUDE REGEX "_absent\\.cpp$")
  endif()
  get_target_property(type fsdp_${folder} TYPE)
  if(chosen AND NOT type STREQUAL "INTERFACE_LIBRARY")
    target_sources(fsdp_${folder} PRIVATE ${chosen})
  endif()
endfunction()

# fsdp_link(folder [PUBLIC targets] [PRIVATE targets]): libraries from outside.
function(fsdp_link folder)
  cmake_parse_arguments(PARSE_ARGV 1 link "" "" "PUBLIC;PRIVATE")
  get_target_property(type fsdp_${folder} TYPE)
  if(type STREQUAL "INTERFACE_LIBRARY")
    target_link_libraries(fsdp_${folder} INTERFACE ${link_PUBLIC})
  else()
    target_link_libraries(fsdp_${folder} PUBLIC ${link_PUBLIC} PRIVATE ${link_PRIVATE})
  endif()
endfunction()

function(fsdp_compile_options folder)
  get_target_property(type fsdp_${folder} TYPE)
  if(NOT type STREQUAL "INTERFACE_LIBRARY")
    target_compile_options(fsdp_${folder} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${ARGN}>")
  endif()
endfunction()
