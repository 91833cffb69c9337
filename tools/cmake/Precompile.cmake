# fsdp_precompile: the headers of the standard library and of fmt, which take half the time of a
# small file, are read once for all targets that have the same compile options. GCC takes a
# precompiled header only with the optimisation and the target CPU that it was made with.
# No header of this repository is among them: to change one recompiles only what includes it.
# Not here: doctest (Tests.cmake adds it for the tests). Read next: Toolchain.cmake (ccache).
set(FSDP_PRECOMPILED
    <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <cstddef> <cstdint> <cstring>
    <exception> <filesystem> <fstream> <functional> <limits> <map> <memory> <mutex> <numeric>
    <optional> <set> <span> <sstream> <string> <string_view> <thread> <tuple> <utility> <variant>
    <vector> <fmt/format.h>)

# fsdp_precompile(target [more headers]): after the target has its compile options. The first target
# with these options and headers compiles them, the others take its result.
function(fsdp_precompile target)
  get_target_property(options ${target} COMPILE_OPTIONS)
  string(MD5 kind "${options};${ARGN}")
  get_property(first GLOBAL PROPERTY FSDP_PRECOMPILED_${kind})
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    target_precompile_headers(${target} PRIVATE ${FSDP_PRECOMPILED} ${ARGN})
    set_property(GLOBAL PROPERTY FSDP_PRECOMPILED_${kind} ${target})
  endif()
  # so that the preprocessed text, by which ccache knows a file, names the precompiled header
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>")
  endif()
endfunction()
