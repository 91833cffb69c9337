# The CUDA tool chain, where there is one: nvcc from a toolkit (12.4 or newer) or from pip's wheels
# (tools/setup.sh --cuda). Sets FSDP_HAVE_CUDA_HEADERS, the target fsdp::cuda and, by CudaChoice.cmake,
# FSDP_HAVE_CUDA.
# cuBLASLt, cuDNN and NCCL are opened at run time and not linked: half a gigabyte each, and a program
# that links them would not start on a machine without them. Read next: CudaChoice.cmake, tests/cuda_emulator.
set(CUDA_DEPS_DIR "" CACHE PATH "the `nvidia` folder of the CUDA pip wheels: cu13/, cudnn/, nccl/")
# What tools/setup.sh puts there later is found by the next build.
file(MAKE_DIRECTORY ${PROJECT_SOURCE_DIR}/.cache/cuda)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/.cache/cuda)
set(gpu_hints $ENV{CUDA_HOME})  # first, as in tools/setup.sh
foreach(folder ${CUDA_DEPS_DIR} ${PROJECT_SOURCE_DIR}/.cache/cuda/12/nvidia
        ${PROJECT_SOURCE_DIR}/.cache/cuda/nvidia)
  list(APPEND gpu_hints ${folder}/cu13 ${folder}/cudnn ${folder}/nccl)
  # the wheels for CUDA 12 have a folder each
  list(APPEND gpu_hints ${folder}/cuda_nvcc ${folder}/cuda_runtime ${folder}/cublas
       ${folder}/cuda_nvrtc)
endforeach()
list(APPEND gpu_hints /usr/local/cuda)

find_program(FSDP_NVCC nvcc HINTS ${gpu_hints} PATH_SUFFIXES bin)
if(FSDP_NVCC)  # what belongs to it comes first: there may be several toolkits
  file(REAL_PATH ${FSDP_NVCC} found)
  cmake_path(GET found PARENT_PATH found)
  cmake_path(GET found PARENT_PATH found)
  list(PREPEND gpu_hints ${found})
endif()
# Headers alone are enough for the emulator of the tests.
find_path(FSDP_CUDA_INCLUDE cuda_runtime.h HINTS ${gpu_hints} PATH_SUFFIXES include)
set(FSDP_CUDA_VERSION 0)
if(FSDP_CUDA_INCLUDE)
  file(STRINGS ${FSDP_CUDA_INCLUDE}/cuda.h found REGEX "^#define CUDA_VERSION ")
  string(REGEX REPLACE "[^0-9]" "" FSDP_CUDA_VERSION "${found}")  # 13000
endif()
math(EXPR cuda_major "${FSDP_CUDA_VERSION} / 1000")
math(EXPR cuda_minor "${FSDP_CUDA_VERSION} / 10 % 100")
if(cuda_major EQUAL 12)  # the wheels of the other CUDA
  list(FILTER gpu_hints EXCLUDE REGEX "/\\.cache/cuda/nvidia/")
else()
  list(FILTER gpu_hints EXCLUDE REGEX "/\\.cache/cuda/12/nvidia/")
endif()
# Of this CUDA, as at run time (kernels/cuda/*_library.cpp): libcublasLt.so may be of another one.
# cuDNN and NCCL have one name for all of them; cudnn_library.cpp asks cuDNN, and NCCL needs nothing
# of CUDA but a driver that is new enough for its own.
find_library(FSDP_CUBLAS NAMES libcublasLt.so.${cuda_major}
             HINTS ${gpu_hints} PATH_SUFFIXES lib64 lib)
set(cudnn_hints ${gpu_hints})
foreach(folder ${CUDA_DEPS_DIR})  # PyTorch's wheels may be for another CUDA, which those beside tell
  if((EXISTS ${folder}/cu13 AND NOT cuda_major EQUAL 13) OR
     (EXISTS ${folder}/cuda_runtime AND NOT cuda_major EQUAL 12))
    list(REMOVE_ITEM cudnn_hints ${folder}/cudnn)
  endif()
endforeach()
find_library(FSDP_CUDNN NAMES libcudnn.so.9 cudnn HINTS ${cudnn_hints} PATH_SUFFIXES lib64 lib)
# cuDNN compiles its kernels with NVRTC, which needs this one.
find_library(FSDP_NVRTC_BUILTINS NAMES libnvrtc-builtins.so.${cuda_major}.${cuda_minor}
             HINTS ${gpu_hints} PATH_SUFFIXES lib64 lib)
find_library(FSDP_NCCL NAMES libnccl.so.2 nccl HINTS ${gpu_hints} PATH_SUFFIXES lib64 lib)
set(FSDP_CUDNN_PATHS  # for cudnn_library.cpp
    FSDP_CUDNN_LIBRARY="$<$<BOOL:${FSDP_CUDNN}>:${FSDP_CUDNN}>"
    FSDP_NVRTC_BUILTINS_LIBRARY="$<$<BOOL:${FSDP_NVRTC_BUILTINS}>:${FSDP_NVRTC_BUILTINS}>")
find_path(FSDP_NVTX_INCLUDE nvtx3/nvToolsExt.h HINTS ${FSDP_CUDA_INCLUDE} ${gpu_hints}
          PATH_SUFFIXES include)
mark_as_advanced(FSDP_NVTX_INCLUDE FSDP_NVCC FSDP_CUDA_INCLUDE FSDP_CUBLAS FSDP_CUDNN FSDP_NVRTC_BUILTINS FSDP_NCCL)

set(FSDP_NVCC_VERSION "")
if(FSDP_NVCC)
  execute_process(COMMAND ${FSDP_NVCC} --version OUTPUT_VARIABLE found ERROR_QUIET)
  string(REGEX MATCH "V([0-9]+\\.[0-9.]+)" found "${found}")
  set(FSDP_NVCC_VERSION "${CMAKE_MATCH_1}")
endif()
include(CudaChoice)

set(FSDP_HAVE_CUDA_HEADERS OFF)  # whatever is built for GPUs: the emulator needs them
if(FSDP_CUDA_VERSION GREATER_EQUAL 12040)
  set(FSDP_HAVE_CUDA_HEADERS ON)
endif()

if(FSDP_HAVE_CUDA)
  file(REAL_PATH ${FSDP_NVCC} CMAKE_CUDA_COMPILER)  # through a link, nvcc does not find its profile
  get_filename_component(gpu_bin ${CMAKE_CUDA_COMPILER} DIRECTORY)
  if(NOT EXISTS ${gpu_bin}/../lib64)  # pip's wheels have lib, nvcc.profile says lib64
    set(CMAKE_CUDA_FLAGS_INIT "-L${gpu_bin}/../lib")
  endif()
  if(NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  endif()
  enable_language(CUDA)
  # CMake before 3.25.2 knows nvcc only to C++17 and ignores a 20 silently.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # fsdp::cuda names it
  # constexpr functions of core in kernels; fmt believes that nvcc knows no constexpr
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-DFMT_USE_CONSTEXPR=1>")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")  # as for C++ (Toolchain.cmake)
    add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-march=x86-64-v3>")
  endif()
endif()

# ---- the target that kernels/cuda compiles and links with ---------------------------------------
add_library(fsdp_cuda INTERFACE)
add_library(fsdp::cuda ALIAS fsdp_cuda)
if(FSDP_HAVE_CUDA)
  # The static runtime: the program starts on a machine that has no CUDA at all.
  find_library(FSDP_CUDART libcudart_static.a HINTS ${gpu_bin}/.. ${gpu_hints}
               PATH_SUFFIXES lib64 lib REQUIRED)
  find_path(FSDP_CUDART_INCLUDE cuda_runtime.h HINTS ${gpu_bin}/.. PATH_SUFFIXES include REQUIRED)
  mark_as_advanced(FSDP_CUDART FSDP_CUDART_INCLUDE)
  target_include_directories(fsdp_cuda SYSTEM INTERFACE ${FSDP_CUDART_INCLUDE}
                             $<$<BOOL:${FSDP_NVTX_INCLUDE}>:${FSDP_NVTX_INCLUDE}>)
  target_link_libraries(fsdp_cuda INTERFACE ${FSDP_CUDART} Threads::Threads ${CMAKE_DL_LIBS} rt)
endif()
