# Compiler settings for every target: standard, warnings, target CPU, sanitizers, compiler cache.
# Not here: flags of one layer (CMakeLists.txt). Read next: Dependencies.cmake.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Designated initialisers leave out members that have defaults.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wno-missing-field-initializers>")

# Not -march=native: the binary must run on other machines, and GCC 12 on AMD makes Eigen 25-40 %
# slower with it. Wider instructions are chosen at run time (oneDNN does that by itself).
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-march=x86-64-v3;-mtune=generic>")
endif()

# SANITIZE=thread: no OpenMP (GCC's gives false reports), no oneDNN (generated code cannot be seen),
# no MPI (not instrumented): thread pool, Eigen and the local transport take their places.
set(SANITIZE "" CACHE STRING "empty, thread, or address (address and undefined behaviour)")
set_property(CACHE SANITIZE PROPERTY STRINGS "" thread address)
if(SANITIZE STREQUAL "thread")
  set(sanitize_flags -fsanitize=thread)
elseif(SANITIZE STREQUAL "address")
  set(sanitize_flags -fsanitize=address,undefined -fno-sanitize-recover=undefined)
elseif(NOT SANITIZE STREQUAL "")
  message(FATAL_ERROR "SANITIZE=${SANITIZE}: expected thread or address")
endif()
# FSDP_FUZZ=ON: for the fuzz targets alone (Fuzz.cmake).
option(FSDP_FUZZ "build the libFuzzer targets (clang)" OFF)
if(FSDP_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "FSDP_FUZZ=ON: libFuzzer needs clang: -DCMAKE_CXX_COMPILER=clang++-14")
  endif()
  add_compile_options(-O2 -g1 -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined
                      -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=address,undefined)
  if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 15)
    add_compile_options(-include ${PROJECT_SOURCE_DIR}/tests/fuzz/half_of_old_clang.h)
  endif()
  set(CMAKE_CXX_FLAGS_RELEASE "")  # and no -DNDEBUG
endif()
if(SANITIZE)
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -fno-omit-frame-pointer")  # and no -DNDEBUG
  add_compile_options(${sanitize_flags})
  add_link_options(${sanitize_flags})
endif()

# Through ccache where it is installed, now or later: the commands stay the same.
if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_CURRENT_LIST_DIR}/compile.sh)
endif()
