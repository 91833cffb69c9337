# The tests: one doctest program per folder (test_core, ...), one ctest entry per *_test.cpp file.
# Labels: unit (default), ranks (unit tests that run hundreds of small trainings), mpi, e2e, slow;
# cuda_emulator and gpu: CudaTests.cmake. Run them with
# tests/run_tests.sh (make test).
# Not here: what a test may use (tests/support).
find_package(doctest QUIET)
if(NOT doctest_FOUND)
  return()  # the summary says so
endif()
enable_testing()

# Half the time to compile; what is tested keeps its own options. An assertion is a call instead of code in place, and
# an error in it ends its test case, which fails all the same: an eighth of the time. Options, not definitions, which
# would reach the targets of the product too.
add_compile_options("$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>"
                    "$<$<COMPILE_LANGUAGE:CXX>:-DDOCTEST_CONFIG_SUPER_FAST_ASSERTS>"
                    "$<$<COMPILE_LANGUAGE:CXX>:-DDOCTEST_CONFIG_NO_TRY_CATCH_IN_ASSERTS>")

set(tests ${PROJECT_SOURCE_DIR}/tests)
set(test_environment "OMP_WAIT_POLICY=passive;SOURCE=${PROJECT_SOURCE_DIR}"
    "FSDP=${PROJECT_BINARY_DIR}/fsdp;OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
    "FSDP_EMULATED=${PROJECT_BINARY_DIR}/fsdp_emulated"
    "TEST_CUDA_EMULATOR=${PROJECT_BINARY_DIR}/test_cuda_emulator"
    "LYING_FOLDER_LIBRARY=${PROJECT_BINARY_DIR}/libfsdp_lying_folder.so"
    "OMPI_MCA_mpi_yield_when_idle=1")  # as comm/mpi_transport.cpp: blocking calls leave the core
if(NOT FSDP_HAVE_CUDA)  # beside a GPU that the program cannot use, --backend auto would be an error
  list(APPEND test_environment "CUDA_VISIBLE_DEVICES=")
endif()
set(mpirun ${MPIEXEC_EXECUTABLE} --oversubscribe --bind-to none)
if(FSDP_HAVE_MPI)
  string(REPLACE ";" " " mpirun_line "${mpirun}")
  list(APPEND test_environment "MPIRUN=${mpirun_line}")  # empty for scripts when MPI is absent
endif()
if(SANITIZE)
  # gcc's runtimes cannot see into Open MPI and yaml-cpp; what they keep is not our leak
  list(APPEND test_environment "LSAN_OPTIONS=suppressions=${tests}/support/leaks.txt:print_suppressions=0"
       "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1" "UBSAN_OPTIONS=print_stacktrace=1")
endif()
set(slow_factor 1)
if(SANITIZE STREQUAL "thread")
  set(slow_factor 30)  # plan/validation: 15 s without, more than 10 minutes with it
elseif(SANITIZE)
  set(slow_factor 5)
endif()

# Only this file is compiled with the path of the repository: a compiler cache knows the others also
# in another folder.
add_library(fsdp_source_folder STATIC ${tests}/support/source_folder.cpp)
target_include_directories(fsdp_source_folder PUBLIC ${PROJECT_SOURCE_DIR})
target_compile_definitions(fsdp_source_folder PRIVATE FSDP_SOURCE_DIR="${PROJECT_SOURCE_DIR}")

# what every test may use: tests/support, the layers, and outside libraries
file(GLOB support CONFIGURE_DEPENDS ${tests}/support/*.cpp)
list(REMOVE_ITEM support ${tests}/support/source_folder.cpp ${tests}/support/lying_folder.cpp)
add_library(fsdp_test_base INTERFACE)
target_link_libraries(fsdp_test_base INTERFACE fsdp_tools_commands fsdp_tools_data_chat doctest::doctest
                      nlohmann_json::nlohmann_json yaml-cpp fsdp_source_folder)
add_library(fsdp_test_support STATIC ${support})
target_link_libraries(fsdp_test_support PUBLIC fsdp_test_base)
fsdp_precompile(fsdp_test_support <doctest/doctest.h>)
fsdp_join(fsdp_test_support)
# For LD_PRELOAD of scripts.
add_library(fsdp_lying_folder SHARED ${tests}/support/lying_folder.cpp)
target_link_libraries(fsdp_lying_folder PRIVATE ${CMAKE_DL_LIBS})
add_library(fsdp_test_main OBJECT ${tests}/main.cpp)
target_link_libraries(fsdp_test_main PRIVATE doctest::doctest)

# fsdp_entry(name label seconds cores command...): tests/run_tests.sh runs four halves of a core at a time.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${tests}/long_tests.txt)
file(STRINGS ${tests}/long_tests.txt long_tests REGEX "^[^#]")
function(fsdp_entry name label seconds cores)
  add_test(NAME ${name} COMMAND ${ARGN})
  math(EXPR seconds "${seconds} * ${slow_factor}")
  math(EXPR halves "2 * ${cores}")
  set(cost 0)
  foreach(line IN LISTS long_tests)
    if(line MATCHES "^${name} ([0-9]+)( waits)?$")
      set(cost ${CMAKE_MATCH_1})
      if(CMAKE_MATCH_2)
        set(halves 1)
      endif()
    endif()
  endforeach()
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${seconds} SKIP_RETURN_CODE 77 COST ${cost}
                       PROCESSORS ${halves} ENVIRONMENT "${test_environment}")
endfunction()

# A filter that matches nothing must not count as passed.
function(fsdp_refuse_empty name)
  set_tests_properties(${name} PROPERTIES FAIL_REGULAR_EXPRESSION "test cases: +0 ")
endfunction()

foreach(folder core kernels models comm optim tools)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${tests}/${folder}/*_test.cpp)
  list(FILTER sources EXCLUDE REGEX "/tests/kernels/cuda/")  # CudaTests.cmake
  if(sources)
    add_executable(test_${folder} ${sources} $<TARGET_OBJECTS:fsdp_test_main>)
    target_link_libraries(test_${folder} PRIVATE fsdp_test_support)
    fsdp_precompile(test_${folder} <doctest/doctest.h>)
    fsdp_join(test_${folder})
    foreach(source IN LISTS sources)
      file(RELATIVE_PATH path ${tests} ${source})
      string(REGEX REPLACE "_test\\.cpp$" "" name ${path})
      if(name MATCHES "_slow$")
        fsdp_entry(${name} slow 600 2 test_${folder} --no-colors=1
                   --source-file=*/tests/${path})
      elseif(name MATCHES "/(removed_waits|world_sizes)$")
        fsdp_entry(${name} ranks 300 1 test_${folder} --no-colors=1
                   --source-file=*/tests/${path})
      else()
        fsdp_entry(${name} unit 60 1 test_${folder} --no-colors=1
                   --source-file=*/tests/${path})
      endif()
      # A removed wait is a race: the thread sanitizer leaves that test out.
      if(NOT (SANITIZE STREQUAL "thread" AND name MATCHES "/removed_waits$"))
        fsdp_refuse_empty(${name})
      endif()
    endforeach()
  endif()
endforeach()

# What tests/support/io_faults.h lets fail.
foreach(call open close read pread write pwrite fsync rename renameat2 mkdir flock mmap opendir
        closedir readdir stat unlink)
  target_link_options(test_tools PRIVATE LINKER:--wrap=${call})
endforeach()

file(GLOB sources CONFIGURE_DEPENDS ${tests}/mpi/*_test.cpp)
if(sources AND FSDP_HAVE_MPI)
  add_executable(test_mpi ${sources} ${tests}/mpi/main.cpp)
  target_link_libraries(test_mpi PRIVATE fsdp_test_support MPI::MPI_CXX)
  set(slow_sources ${sources})
  list(FILTER sources EXCLUDE REGEX "_slow_test\\.cpp$")
  list(FILTER slow_sources INCLUDE REGEX "_slow_test\\.cpp$")
  foreach(ranks 1 2 3 4)
    set(launch ${mpirun} -n ${ranks} $<TARGET_FILE:test_mpi> --no-colors=1)
    if(sources)
      fsdp_entry(mpi/${ranks}_ranks mpi 120 ${ranks}
                 ${launch} --source-file-exclude=*_slow_test.cpp)
      fsdp_refuse_empty(mpi/${ranks}_ranks)
    endif()
    if(slow_sources)
      fsdp_entry(mpi/${ranks}_ranks_slow slow 600 ${ranks} ${launch} --source-file=*_slow_test.cpp)
      fsdp_refuse_empty(mpi/${ranks}_ranks_slow)
    endif()
  endforeach()
endif()

foreach(name safetensors index config adapter tokenizer rows template)
  fsdp_entry(fuzz/${name} unit 60 1 fuzz_smoke_${name})
endforeach()

include(CudaTests)

# scripts: end to end (they run the program) and lint (they read the sources)
file(GLOB scripts CONFIGURE_DEPENDS ${tests}/e2e/*.sh)
foreach(script IN LISTS scripts)
  cmake_path(GET script STEM name)
  if(name MATCHES "_slow$")
    fsdp_entry(e2e/${name} slow 1800 2 bash ${script})
  elseif(name MATCHES "^(bench|explain_compare|train_mpi|verify_fsdp|verify_models)$")
    fsdp_entry(e2e/${name} e2e 300 2 bash ${script})  # keeps two cores busy, or measures
  else()
    fsdp_entry(e2e/${name} e2e 300 1 bash ${script})
  endif()
endforeach()
fsdp_entry(real/walk e2e 120 1 bash ${tests}/real/walk.sh)
file(GLOB scripts CONFIGURE_DEPENDS ${tests}/lint/*.sh)
foreach(script IN LISTS scripts)
  cmake_path(GET script STEM name)
  fsdp_entry(lint/${name} unit 60 1 bash ${script})
endforeach()
fsdp_entry(lint/requirements unit 60 1 bash ${tests}/requirements.sh)
