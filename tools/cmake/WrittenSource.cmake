# fsdp_written_source(target name content): a source of the target, build/NAME, that is written when
# cmake runs. Where it has this content already it is left alone, so that nothing is compiled again.
function(fsdp_written_source target name content)
  set(output ${PROJECT_BINARY_DIR}/${name})
  set(written "")
  if(EXISTS ${output})
    file(READ ${output} written)
  endif()
  if(NOT written STREQUAL content)
    file(WRITE ${output} "${content}")
  endif()
  target_sources(${target} PRIVATE ${output})
endfunction()
