# fsdp_layer, fsdp_choose, fsdp_link, fsdp_compile_options: one static library per room, which is a
# folder: tools/train is fsdp_tools_train. Used by CMakeLists.txt, where the edges stand.

function(fsdp_target folder out)
  string(REPLACE "/" "_" name fsdp_${folder})
  set(${out} ${name} PARENT_SCOPE)
endfunction()

# fsdp_layer(folder [DEPENDS folders] [EXCLUDE path regexes]): all .cpp below the folder.
function(fsdp_layer folder)
  cmake_parse_arguments(PARSE_ARGV 1 layer "" "" "DEPENDS;EXCLUDE")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
       ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
  foreach(regex IN LISTS layer_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "^${regex}")
  endforeach()
  fsdp_target(${folder} name)
  add_library(${name} STATIC ${sources})
  set_property(GLOBAL APPEND PROPERTY FSDP_ROOMS ${name})
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  foreach(other IN LISTS layer_DEPENDS)
    fsdp_target(${other} library)
    target_link_libraries(${name} PUBLIC ${library})
  endforeach()
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
  fsdp_target(${folder} name)
  target_sources(${name} PRIVATE ${chosen})
endfunction()

# fsdp_link(folder [PUBLIC targets] [PRIVATE targets]): libraries from outside.
function(fsdp_link folder)
  fsdp_target(${folder} name)
  target_link_libraries(${name} ${ARGN})
endfunction()

function(fsdp_compile_options folder)
  fsdp_target(${folder} name)
  target_compile_options(${name} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${ARGN}>")
endfunction()
