# The fuzz targets of tests/fuzz. FSDP_FUZZ=ON (clang): everything is compiled with libFuzzer's
# coverage, AddressSanitizer and UndefinedBehaviorSanitizer, `fuzz_NAME` is a libFuzzer program.
# Always: `fuzz_smoke_NAME`, an ordinary program over the seeds (a per-commit test, Tests.cmake).
# Run them with `make fuzz`. Read next: tests/fuzz/fuzz_target.h.
set(fuzz ${PROJECT_SOURCE_DIR}/tests/fuzz)

add_library(fsdp_json_mutator OBJECT ${fuzz}/json_mutator.cpp)
target_link_libraries(fsdp_json_mutator PUBLIC nlohmann_json::nlohmann_json)
target_include_directories(fsdp_json_mutator PUBLIC ${PROJECT_SOURCE_DIR})

# fsdp_fuzz_target(name library...)
function(fsdp_fuzz_target name)
  add_executable(fuzz_smoke_${name} ${fuzz}/${name}_fuzz.cpp ${fuzz}/smoke.cpp)
  target_link_libraries(fuzz_smoke_${name} PRIVATE ${ARGN} fsdp_json_mutator)
  if(FSDP_FUZZ)
    add_executable(fuzz_${name} ${fuzz}/${name}_fuzz.cpp ${fuzz}/libfuzzer.cpp)
    target_link_libraries(fuzz_${name} PRIVATE ${ARGN} fsdp_json_mutator)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  endif()
endfunction()

fsdp_fuzz_target(safetensors fsdp_core_io)
fsdp_fuzz_target(index fsdp_core_io)
fsdp_fuzz_target(config fsdp_models)
fsdp_fuzz_target(adapter fsdp_models)
fsdp_fuzz_target(tokenizer fsdp_tools_data_tokenizer)
fsdp_fuzz_target(rows fsdp_tools_data)
fsdp_fuzz_target(template fsdp_tools_data_chat)
