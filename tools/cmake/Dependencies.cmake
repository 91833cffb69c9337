# Finds the libraries. Needed ones stop the configure with the package to install; optional ones
# (MPI, oneDNN, OpenMP, liburing) become the targets fsdp::mpi, fsdp::onednn, fsdp::openmp,
# fsdp::liburing, empty when absent.
# Read next: Cuda.cmake, Summary.cmake.

# fsdp_need(package debian-package): find it or stop with one helpful line.
macro(fsdp_need package debian)
  find_package(${package} QUIET)
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "${package} was not found. Debian, Ubuntu: apt-get install ${debian} "
                        "(all that is needed: tools/setup.sh). Elsewhere: load its module, or set "
                        "CMAKE_PREFIX_PATH to where it is installed.")
  endif()
endmacro()

# What tools/setup.sh installs later is looked for again.
if(NOT EXISTS ${PROJECT_SOURCE_DIR}/.cache/packages_installed)
  file(WRITE ${PROJECT_SOURCE_DIR}/.cache/packages_installed "")
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
             ${PROJECT_SOURCE_DIR}/.cache/packages_installed)

set(THREADS_PREFER_PTHREAD_FLAG ON)
fsdp_need(Threads libc6-dev)
fsdp_need(fmt libfmt-dev)
fsdp_need(nlohmann_json nlohmann-json3-dev)
fsdp_need(Eigen3 libeigen3-dev)
fsdp_need(yaml-cpp libyaml-cpp-dev)
fsdp_need(CLI11 libcli11-dev)
if(TARGET yaml-cpp::yaml-cpp AND NOT TARGET yaml-cpp)  # the name from 0.8 on
  add_library(yaml-cpp INTERFACE IMPORTED)
  target_link_libraries(yaml-cpp INTERFACE yaml-cpp::yaml-cpp)
endif()

# Without CMake packages in Debian, so: header and library ("": the header is all).
function(fsdp_need_library name header library debian)
  string(TOUPPER ${name} upper)
  find_path(${upper}_INCLUDE ${header})
  set(libraries)
  if(library)
    find_library(${upper}_LIBRARY ${library})
    set(libraries ${${upper}_LIBRARY})
  endif()
  if(NOT ${upper}_INCLUDE OR (library AND NOT libraries))
    message(FATAL_ERROR "${name} was not found. Debian, Ubuntu: apt-get install ${debian} "
                        "(all that is needed: tools/setup.sh). Elsewhere: load its module, or set "
                        "CMAKE_PREFIX_PATH to where it is installed.")
  endif()
  add_library(fsdp::${name} INTERFACE IMPORTED)
  target_include_directories(fsdp::${name} SYSTEM INTERFACE ${${upper}_INCLUDE})
  target_link_libraries(fsdp::${name} INTERFACE ${libraries})
  mark_as_advanced(${upper}_INCLUDE ${upper}_LIBRARY)
endfunction()
fsdp_need_library(pcre2 pcre2.h pcre2-8 libpcre2-dev)
fsdp_need_library(utf8proc utf8proc.h utf8proc libutf8proc-dev)
fsdp_need_library(xxhash xxhash.h "" libxxhash-dev)

option(FSDP_MPI "use MPI where it is found" ON)
option(FSDP_ONEDNN "use oneDNN where it is found" ON)
option(FSDP_LIBURING "use liburing where it is found" ON)
foreach(name mpi onednn openmp liburing)
  add_library(fsdp_${name} INTERFACE)
  add_library(fsdp::${name} ALIAS fsdp_${name})
endforeach()
set(FSDP_HAVE_MPI OFF)
set(FSDP_HAVE_ONEDNN OFF)
set(FSDP_HAVE_OPENMP OFF)

if(FSDP_MPI AND NOT SANITIZE STREQUAL "thread")
  set(MPI_CXX_SKIP_MPICXX ON)  # the C interface only; the C++ one left the standard with MPI 3
  find_package(MPI QUIET COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    set(FSDP_HAVE_MPI ON)
    target_link_libraries(fsdp_mpi INTERFACE MPI::MPI_CXX)
  endif()
endif()

# find_package(dnnl) of Debian's package stops for want of OpenCL, so: header and library.
if(FSDP_ONEDNN AND NOT SANITIZE STREQUAL "thread")
  find_path(ONEDNN_INCLUDE dnnl.hpp HINTS $ENV{DNNLROOT} PATH_SUFFIXES include)
  find_library(ONEDNN_LIBRARY dnnl HINTS $ENV{DNNLROOT} PATH_SUFFIXES lib lib64)
  if(ONEDNN_INCLUDE AND ONEDNN_LIBRARY)
    set(FSDP_HAVE_ONEDNN ON)
    target_include_directories(fsdp_onednn SYSTEM INTERFACE ${ONEDNN_INCLUDE})
    target_link_libraries(fsdp_onednn INTERFACE ${ONEDNN_LIBRARY})
  endif()
endif()

if(NOT SANITIZE STREQUAL "thread")
  find_package(OpenMP QUIET COMPONENTS CXX)
  if(OpenMP_CXX_FOUND)
    set(FSDP_HAVE_OPENMP ON)
    target_link_libraries(fsdp_openmp INTERFACE OpenMP::OpenMP_CXX)
  endif()
endif()

set(FSDP_HAVE_LIBURING OFF)
if(FSDP_LIBURING)
  find_path(LIBURING_INCLUDE liburing.h)
  find_library(LIBURING_LIBRARY uring)
  if(LIBURING_INCLUDE AND LIBURING_LIBRARY)
    set(FSDP_HAVE_LIBURING ON)
    target_include_directories(fsdp_liburing SYSTEM INTERFACE ${LIBURING_INCLUDE})
    target_link_libraries(fsdp_liburing INTERFACE ${LIBURING_LIBRARY})
  endif()
endif()

mark_as_advanced(ONEDNN_INCLUDE ONEDNN_LIBRARY LIBURING_INCLUDE LIBURING_LIBRARY)

include(Carried)
include(Cuda)
