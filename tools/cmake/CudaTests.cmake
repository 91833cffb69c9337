# The tests of the CUDA backend. One set of sources, several programs:
#   test_cuda_emulator  kernels/cuda compiled by the C++ compiler and run by tests/cuda_emulator on the
#                       CPU; needs the CUDA headers and Boost.Context. Label cuda_emulator
#   test_cuda_races     the same, where every load and store of a kernel is watched. Label slow; built
#                       by `make test-all` only
#   fsdp_emulated       the program `fsdp` with an emulated GPU
#   test_cudnn_support  cuDNN itself, for GPUs that are only described. Label cuda_emulator
#   test_gpu            the real ones; cases skip themselves without a GPU. Label gpu
# Read next: tests/cuda_emulator/emulator.h.
file(GLOB_RECURSE cuda_tests CONFIGURE_DEPENDS ${tests}/kernels/cuda/*_test.cpp)
set(support_tests ${tests}/kernels/cuda/cudnn_support_test.cpp ${tests}/kernels/cuda/cudnn_pieces_test.cpp)
list(REMOVE_ITEM cuda_tests ${support_tests})

function(fsdp_cuda_entries program prefix label seconds)
  foreach(source IN LISTS ARGN)
    file(RELATIVE_PATH path ${tests} ${source})
    string(REGEX REPLACE "_test\\.cpp$" "" name ${path})
    fsdp_entry(${prefix}/${name} ${label} ${seconds} 1 ${program} --no-colors=1
               --source-file=*/tests/${path})
    fsdp_refuse_empty(${prefix}/${name})
  endforeach()
endfunction()

# The context library is not instrumented for ThreadSanitizer, which cannot follow its fibers.
find_package(Boost QUIET COMPONENTS context)
set(FSDP_HAVE_EMULATOR OFF)
if(FSDP_HAVE_CUDA_HEADERS AND Boost_CONTEXT_FOUND AND NOT SANITIZE STREQUAL "thread")
  set(FSDP_HAVE_EMULATOR ON)
endif()

if(FSDP_HAVE_EMULATOR OR FSDP_HAVE_CUDA)  # compiled once, for both kinds of GPU
  add_library(fsdp_cuda_tests OBJECT ${cuda_tests})
  target_link_libraries(fsdp_cuda_tests PRIVATE fsdp_kernels fsdp_kernels_meta fsdp_comm doctest::doctest
                        fsdp_source_folder)
  target_include_directories(fsdp_cuda_tests SYSTEM PRIVATE ${FSDP_CUDA_INCLUDE})
  fsdp_precompile(fsdp_cuda_tests <doctest/doctest.h>)
  fsdp_join(fsdp_cuda_tests)
endif()

if(FSDP_HAVE_EMULATOR)
  # A .cu file becomes C++ by being included: a property of the source would count for nvcc too.
  file(GLOB kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cu)
  set(wrappers "")
  set(emulated "")
  foreach(kernel IN LISTS kernels)
    cmake_path(GET kernel FILENAME name)
    set(wrapper ${PROJECT_BINARY_DIR}/cuda_emulator/${name}.cpp)
    file(CONFIGURE OUTPUT ${wrapper} CONTENT "#include \"kernels/cuda/${name}\"\n")
    list(APPEND wrappers ${wrapper})
  endforeach()
  file(GLOB runtime CONFIGURE_DEPENDS ${tests}/cuda_emulator/*.cpp)
  list(FILTER runtime EXCLUDE REGEX "(_test|schedules)\\.cpp$")
  # Waits of host code become places too: the sources are compiled as edges.sed leaves them.
  set(edges ${tests}/cuda_emulator/edges.sed)
  file(GLOB hosts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cpp)
  list(FILTER hosts EXCLUDE REGEX "(_absent|(cublaslt|cudnn|nvml|nvtx)_library)\\.cpp$")
  foreach(name communicator host_collectives nccl_communicator)
    list(APPEND hosts ${PROJECT_SOURCE_DIR}/comm/${name}.cpp)
  endforeach()
  foreach(host IN LISTS hosts)
    cmake_path(GET host FILENAME name)
    set(copy ${PROJECT_BINARY_DIR}/cuda_emulator/${name})
    add_custom_command(OUTPUT ${copy} DEPENDS ${host} ${edges} VERBATIM COMMAND sh -c
      "(echo '#include \"tests/cuda_emulator/edges.h\"'; echo '#line 1 \"${host}\"'; sed -E -f '${edges}' '${host}') > '${copy}'")
    list(APPEND emulated ${copy})
  endforeach()
  set_source_files_properties(${PROJECT_BINARY_DIR}/cuda_emulator/device_count.cpp PROPERTIES
    COMPILE_DEFINITIONS FSDP_CUDA_CODE="80, 90a, PTX of 90")
  foreach(name IN LISTS exact_kernels)
    set_source_files_properties(${PROJECT_BINARY_DIR}/cuda_emulator/${name}.cu.cpp PROPERTIES
                                COMPILE_OPTIONS -ffp-contract=off)
  endforeach()
  # Object libraries: their definitions stand before those of fsdp_cuda_backend, real or absent.
  function(fsdp_emulated_library name)
    add_library(${name} OBJECT ${ARGN})
    target_include_directories(${name} BEFORE PUBLIC ${tests}/cuda_emulator/include)
    target_include_directories(${name} SYSTEM PUBLIC ${FSDP_CUDA_INCLUDE})
    target_link_libraries(${name} PUBLIC fsdp_kernels fsdp_comm Boost::context)
    # Kernels read runs of elements as packets, which only CUDA's compiler allows.
    target_compile_options(${name} PRIVATE -fno-strict-aliasing -Wno-unknown-pragmas
                           "$<$<CONFIG:Release>:-O2>")
  endfunction()
  fsdp_emulated_library(fsdp_cuda_emulated ${emulated} ${runtime})
  fsdp_emulated_library(fsdp_emulated_kernels ${wrappers})

  file(GLOB self_tests CONFIGURE_DEPENDS ${tests}/cuda_emulator/*_test.cpp)
  add_executable(test_cuda_emulator ${self_tests} ${tests}/cuda_emulator/schedules.cpp
                 $<TARGET_OBJECTS:fsdp_cuda_tests> $<TARGET_OBJECTS:fsdp_test_main>)
  target_link_libraries(test_cuda_emulator PRIVATE fsdp_cuda_emulated fsdp_emulated_kernels fsdp_kernels_meta
                        fsdp_source_folder doctest::doctest)
  target_compile_options(test_cuda_emulator PRIVATE -fno-strict-aliasing -Wno-unknown-pragmas)
  find_path(FSDP_CUBLAS_INCLUDE cublasLt.h HINTS ${gpu_hints} PATH_SUFFIXES include)
  mark_as_advanced(FSDP_CUBLAS_INCLUDE)
  if(FSDP_CUBLAS_INCLUDE)  # only to be compiled
    target_sources(test_cuda_emulator PRIVATE ${tests}/kernels/cuda/cublaslt_header.cpp)
    target_include_directories(test_cuda_emulator SYSTEM PRIVATE ${FSDP_CUBLAS_INCLUDE})
  endif()
  fsdp_cuda_entries(test_cuda_emulator emulated cuda_emulator 300 ${self_tests} ${cuda_tests})

  # Whole steps on ranks: collectives, and the program itself with an emulated GPU.
  file(GLOB rank_tests CONFIGURE_DEPENDS ${tests}/cuda_emulator/ranks/*_test.cpp)
  add_executable(test_cuda_ranks ${rank_tests} $<TARGET_OBJECTS:fsdp_test_main>)
  target_link_libraries(test_cuda_ranks PRIVATE fsdp_cuda_emulated fsdp_emulated_kernels fsdp_test_support)
  find_path(FSDP_NCCL_INCLUDE nccl.h HINTS ${gpu_hints} PATH_SUFFIXES include)
  mark_as_advanced(FSDP_NCCL_INCLUDE)
  if(FSDP_NCCL_INCLUDE)  # only to be compiled
    target_sources(test_cuda_ranks PRIVATE ${tests}/cuda_emulator/ranks/nccl_header.cpp)
    target_include_directories(test_cuda_ranks SYSTEM PRIVATE ${FSDP_NCCL_INCLUDE})
  endif()
  fsdp_cuda_entries(test_cuda_ranks emulated cuda_emulator 300 ${rank_tests})
  add_executable(fsdp_emulated ${PROJECT_SOURCE_DIR}/tools/commands/main.cpp)
  target_link_libraries(fsdp_emulated PRIVATE fsdp_cuda_emulated fsdp_emulated_kernels fsdp_tools_commands)
  if(NOT SANITIZE)
    # Compiled for ThreadSanitizer and linked with races/hooks.cpp in the place of its library.
    file(GLOB races_tests CONFIGURE_DEPENDS ${tests}/cuda_emulator/races/*_test.cpp)
    fsdp_emulated_library(fsdp_watched_kernels ${wrappers} ${races_tests})
    target_link_libraries(fsdp_watched_kernels PRIVATE doctest::doctest fsdp_source_folder)
    target_compile_options(fsdp_watched_kernels PRIVATE -fsanitize=thread -g1)
    file(GLOB races CONFIGURE_DEPENDS ${tests}/cuda_emulator/races/*.cpp)
    list(FILTER races EXCLUDE REGEX "_test\\.cpp$")
    add_executable(test_cuda_races ${races} ${tests}/cuda_emulator/schedules.cpp
                   $<TARGET_OBJECTS:fsdp_cuda_tests> $<TARGET_OBJECTS:fsdp_test_main>)
    target_link_libraries(test_cuda_races PRIVATE fsdp_cuda_emulated fsdp_watched_kernels fsdp_kernels_meta
                          fsdp_source_folder doctest::doctest)
    set_target_properties(fsdp_watched_kernels test_cuda_races PROPERTIES EXCLUDE_FROM_ALL ON)
    fsdp_cuda_entries(test_cuda_races races slow 600 ${races_tests} ${cuda_tests})
  endif()
  fsdp_entry(emulated/verify cuda_emulator 600 2 bash ${tests}/cuda_emulator/verify.sh)
  fsdp_entry(emulated/resume cuda_emulator 600 2 bash ${tests}/cuda_emulator/resume.sh)
  fsdp_entry(emulated/memory_limit cuda_emulator 300 1 bash ${tests}/cuda_emulator/memory_limit.sh)
  fsdp_entry(emulated/lost_context cuda_emulator 300 2 bash ${tests}/cuda_emulator/lost_context.sh)
  fsdp_entry(emulated/nccl_errors cuda_emulator 300 2 bash ${tests}/cuda_emulator/nccl_errors.sh)
  # With the driver's implicit waits: where each rank has a GPU, and where all share one, which NCCL
  # does not do.
  foreach(waits own all)
    foreach(program emulator ranks)
      fsdp_entry(emulated/driver_waits_${waits}_${program} slow 900 2 ${CMAKE_COMMAND} -E env
                 CUDA_EMULATOR_DRIVER_WAITS=${waits} $<TARGET_FILE:test_cuda_${program}> --no-colors=1
                 $<$<STREQUAL:${waits}${program},allranks>:--source-file-exclude=*/nccl_test.cpp,*/nccl_memory_test.cpp,*/session_test.cpp,*/predicted_memory_test.cpp,*/budget_test.cpp>)
    endforeach()
  endforeach()
  # Grids as wide as an H200's.
  fsdp_entry(emulated/132_multiprocessors slow 900 2 ${CMAKE_COMMAND} -E env
             CUDA_EMULATOR_MULTIPROCESSORS=132 $<TARGET_FILE:test_cuda_emulator> --no-colors=1)
  fsdp_entry(emulated/mutations slow 1500 2 bash ${tests}/cuda_emulator/mutations.sh)
endif()

if(FSDP_HAVE_CUDA_HEADERS)
  add_library(fsdp_driver_stub MODULE ${tests}/kernels/cuda/driver_stub.cpp)
  set_target_properties(fsdp_driver_stub PROPERTIES OUTPUT_NAME cuda SUFFIX .so.1
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/driver_stub)
  target_link_options(fsdp_driver_stub PRIVATE LINKER:-soname,libcuda.so.1)
  file(GLOB cudnn_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/cudnn_*.cpp)
  list(FILTER cudnn_sources EXCLUDE REGEX "cudnn_attention\\.cpp$")
  add_executable(test_cudnn_support ${support_tests} ${cudnn_sources}
                 $<TARGET_OBJECTS:fsdp_test_main>)
  target_include_directories(test_cudnn_support SYSTEM PRIVATE ${FSDP_CUDA_INCLUDE})
  target_link_libraries(test_cudnn_support PRIVATE fsdp_kernels_meta doctest::doctest ${CMAKE_DL_LIBS})
  target_compile_definitions(test_cudnn_support PRIVATE
    FSDP_DRIVER_STUB="$<TARGET_FILE:fsdp_driver_stub>")
  add_dependencies(test_cudnn_support fsdp_driver_stub)
  fsdp_entry(cudnn/graphs cuda_emulator 600 1 test_cudnn_support --test-case=*Llama)
  fsdp_entry(cudnn/graphs_slow slow 1200 1 test_cudnn_support --test-case=*kind)
  fsdp_entry(cudnn/table_slow slow 1800 1 test_cudnn_support --test-case=table*)
  fsdp_refuse_empty(cudnn/graphs)
  fsdp_refuse_empty(cudnn/graphs_slow)
  fsdp_refuse_empty(cudnn/table_slow)
  if(SANITIZE AND FSDP_CUDNN)
    # What dlopen does through the sanitizer does not look beside the library that asks. What cuDNN
    # keeps to its end is not our leak.
    get_filename_component(cudnn_folder ${FSDP_CUDNN} DIRECTORY)
    get_filename_component(nvrtc_folder "${FSDP_NVRTC_BUILTINS}" DIRECTORY)
    set_property(TEST cudnn/graphs cudnn/graphs_slow cudnn/table_slow APPEND PROPERTY ENVIRONMENT
                 "LD_LIBRARY_PATH=${cudnn_folder}:${nvrtc_folder}" "ASAN_OPTIONS=detect_leaks=0")
  endif()
  find_path(FSDP_CUDNN_INCLUDE cudnn_graph.h HINTS ${gpu_hints} PATH_SUFFIXES include)
  mark_as_advanced(FSDP_CUDNN_INCLUDE)
  if(FSDP_CUDNN_INCLUDE)  # only to be compiled
    target_sources(test_cudnn_support PRIVATE ${tests}/kernels/cuda/cudnn_header.cpp)
    target_include_directories(test_cudnn_support SYSTEM PRIVATE ${FSDP_CUDNN_INCLUDE})
  endif()
endif()

if(FSDP_HAVE_CUDA AND cuda_tests)
  add_executable(test_gpu ${tests}/kernels/cuda/schedules.cpp
                 $<TARGET_OBJECTS:fsdp_cuda_tests> $<TARGET_OBJECTS:fsdp_test_main>)
  target_link_libraries(test_gpu PRIVATE fsdp_cuda_backend fsdp_kernels_meta fsdp_comm fsdp::cuda fsdp_source_folder
                        doctest::doctest)
  fsdp_cuda_entries(test_gpu gpu gpu 300 ${cuda_tests})
endif()
