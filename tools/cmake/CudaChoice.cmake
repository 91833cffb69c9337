# Whether CUDA objects are built, and for which GPUs. They take most of the time of a build, so they are
# built where a GPU is seen or where somebody asks for them. Each GPU's kind takes minutes again.
# From Cuda.cmake: FSDP_NVCC, FSDP_NVCC_VERSION, SANITIZE. Sets FSDP_HAVE_CUDA, CMAKE_CUDA_ARCHITECTURES,
# FSDP_CUDA_CODE (for people: "80, 90a, PTX of 90") and, where there is no CUDA, the reason FSDP_NO_CUDA.
# Its test: tests/e2e/cuda_choice.sh.

# A build folder of older versions: nobody chose its ON.
get_property(type CACHE FSDP_CUDA PROPERTY TYPE)
if(type STREQUAL "BOOL" AND FSDP_CUDA)
  unset(FSDP_CUDA CACHE)
  if(DEFINED CACHE{FSDP_CUDA_UNSEEN})  # nor its architecture
    unset(CMAKE_CUDA_ARCHITECTURES CACHE)
    unset(FSDP_CUDA_UNSEEN CACHE)
  endif()
endif()
set(FSDP_CUDA AUTO CACHE STRING "CUDA objects: ON (make CUDA=1), OFF (make CUDA=0), AUTO: where a GPU is seen")
set(FSDP_CUDA_ARCH "" CACHE STRING
    "the GPUs to build for (make CUDA_ARCH=): 90a (H100, H200), 80,90a, 80-real, 90-virtual (PTX); empty: all kinds")
set_property(CACHE FSDP_CUDA PROPERTY STRINGS AUTO ON OFF)
string(TOUPPER "${FSDP_CUDA}" choice)
if(choice MATCHES "^(1|TRUE|YES|Y)$")
  set(choice ON)
elseif(choice MATCHES "^(0|FALSE|NO|N)$")
  set(choice OFF)
elseif(NOT choice MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "FSDP_CUDA=${FSDP_CUDA}: expected ON, OFF or AUTO")
endif()

# The kinds of GPUs for which nvcc makes code: 80;86;90;...
set(for_kernels "^([89].|1..+)$")  # from compute capability 8.0 on
set(known "")
if(FSDP_NVCC_VERSION)
  execute_process(COMMAND ${FSDP_NVCC} --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET)
  string(REGEX MATCHALL "[0-9]+" known "${known}")
  list(FILTER known INCLUDE REGEX "${for_kernels}")
endif()

# What is refused is not kept: the next configure chooses anew.
macro(fsdp_forget_choice)
  unset(FSDP_CUDA CACHE)
  unset(FSDP_CUDA_ARCH CACHE)
endmacro()

# The kinds of the GPUs here, as FSDP_CUDA_ARCH; empty: all kinds. `seen`: whether there is a GPU for kernels.
function(fsdp_gpus_here result seen)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
                  OUTPUT_VARIABLE said ERROR_QUIET RESULT_VARIABLE failed)
  set(here "")
  if(NOT failed)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]" here "${said}")
    string(REPLACE "." "" here "${here}")
    list(REMOVE_DUPLICATES here)
  endif()
  if(NOT DEFINED FSDP_DEVICE_FILES)
    set(FSDP_DEVICE_FILES /dev)
  endif()
  set(found OFF)
  file(GLOB files ${FSDP_DEVICE_FILES}/nvidia[0-9]*)
  if(NOT here AND files)  # of a kind that is not told
    set(found ON)
  endif()
  list(FILTER here INCLUDE REGEX "${for_kernels}")
  if(here)
    set(found ON)
  endif()
  foreach(kind IN LISTS here)
    if(NOT kind IN_LIST known)  # newer than nvcc
      set(here "")
    endif()
  endforeach()
  list(TRANSFORM here APPEND -real)
  list(TRANSFORM here REPLACE "^90-" "90a-")
  set(${result} "${here}" PARENT_SCOPE)
  set(${seen} ${found} PARENT_SCOPE)
endfunction()

set(kinds "$CACHE{CMAKE_CUDA_ARCHITECTURES}")  # CMake's own names come before FSDP_CUDA_ARCH
if(NOT kinds AND NOT FSDP_CUDA_ARCH AND NOT choice STREQUAL "OFF" AND NOT SANITIZE AND
   FSDP_NVCC_VERSION VERSION_GREATER_EQUAL 12.4)
  set(FSDP_CUDA_ARCH "$ENV{CUDAARCHS}" CACHE STRING "" FORCE)  # kept, as what make says
endif()
if(choice STREQUAL "AUTO" AND (kinds OR FSDP_CUDA_ARCH))
  set(choice ON)
endif()

set(FSDP_HAVE_CUDA OFF)
set(FSDP_NO_CUDA "")
if(choice STREQUAL "OFF")
  set(FSDP_NO_CUDA "FSDP_CUDA is off; make CUDA=1 builds it")
elseif(SANITIZE)  # sanitizers cannot see into nvcc's objects; the emulator runs the same sources under them
  set(FSDP_NO_CUDA "not in a sanitizer build: the emulator runs the kernels")
elseif(FSDP_NVCC_VERSION VERSION_LESS 12.4)
  set(FSDP_NO_CUDA "no nvcc of 12.4 or newer; tools/setup.sh --cuda brings one")
  if(choice STREQUAL "ON")
    fsdp_forget_choice()
    message(FATAL_ERROR "CUDA was asked for (make CUDA=1, FSDP_CUDA=ON or an architecture), but there is no nvcc of 12.4 "
                        "or newer: FSDP_NVCC=${FSDP_NVCC} ${FSDP_NVCC_VERSION}. tools/setup.sh --cuda-compiler "
                        "brings one; CUDA_HOME names one that is elsewhere. make CUDA=0 goes on without.")
  endif()
else()
  if(choice STREQUAL "AUTO")
    fsdp_gpus_here(here seen)
    if(seen)  # kept: a node without a GPU may configure this folder again
      set(choice ON)
      set(FSDP_CUDA_ARCH "${here}" CACHE STRING "" FORCE)
    endif()
  endif()
  if(choice STREQUAL "ON")
    set(FSDP_HAVE_CUDA ON)
  else()
    set(FSDP_NO_CUDA "no GPU of compute capability 8.0 or newer is seen here; make CUDA=1 builds for GPUs elsewhere, make CUDA_ARCH=90a for H100 alone")
  endif()
endif()
if(NOT choice STREQUAL "AUTO")
  set(FSDP_CUDA ${choice} CACHE STRING "" FORCE)
endif()

if(FSDP_HAVE_CUDA AND FSDP_CUDA_ARCH AND NOT kinds)
  string(REGEX REPLACE "[, ]+" ";" kinds "${FSDP_CUDA_ARCH}")
  foreach(kind IN LISTS kinds)
    if(NOT kind MATCHES "^([0-9]+)[af]?(-real|-virtual)?$" OR NOT CMAKE_MATCH_1 IN_LIST known)
      list(JOIN known ", " known)
      set(asked "${FSDP_CUDA_ARCH}")
      fsdp_forget_choice()
      message(FATAL_ERROR "CUDA_ARCH=${asked}: ${kind}: expected kinds of GPUs that nvcc ${FSDP_NVCC_VERSION} "
                          "knows, such as 90a or 80,90a (80-real: without PTX; 90-virtual: PTX alone). It knows ${known}. "
                          "make CUDA=0 goes on without.")
    endif()
  endforeach()
  list(TRANSFORM kinds REPLACE "^([0-9]+[af])$" "\\1-real")  # no other GPU translates PTX of 90a
elseif(FSDP_HAVE_CUDA AND NOT kinds)
  # Code for A100, for H100 and, where nvcc knows it, for B200. Code of 80 and 100 also runs on later GPUs of the
  # same first number (86, 89, 103). Any other GPU that is newer than a PTX translates it: so PTX of the newest,
  # of 90 rather than 90a, whose PTX no other GPU takes.
  set(kinds 80-real 90a-real 90-virtual)
  if(100 IN_LIST known)
    set(kinds 80-real 90a-real 100-real 100-virtual)
  endif()
endif()
if(FSDP_HAVE_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES "${kinds}")
endif()
set(FSDP_CUDA_BUILT ${FSDP_HAVE_CUDA} CACHE INTERNAL "for the Makefile")

set(FSDP_CUDA_CODE "")
foreach(kind IN LISTS kinds)
  if(NOT kind MATCHES "-virtual$")
    string(REPLACE "-real" "" name ${kind})
    list(APPEND FSDP_CUDA_CODE ${name})
  endif()
endforeach()
foreach(kind IN LISTS kinds)
  if(kind MATCHES "^[0-9]+[af]?(-virtual)?$")
    string(REPLACE "-virtual" "" name ${kind})
    list(APPEND FSDP_CUDA_CODE "PTX of ${name}")
  endif()
endforeach()
list(JOIN FSDP_CUDA_CODE ", " FSDP_CUDA_CODE)
