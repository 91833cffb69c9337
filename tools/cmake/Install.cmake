# cmake --install: the engine for programs of one's own: headers, static libraries, and the CMake
# package with the target fsdp::engine. Not here: the program fsdp, which runs where it was built.
# Read next: tools/engine/README.md, tools/examples/CMakeLists.txt.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The engine with all that a program hands to it: backends and transports.
add_library(fsdp_engine INTERFACE)
target_link_libraries(fsdp_engine INTERFACE fsdp_tools_engine fsdp_cuda_backend)
target_compile_features(fsdp_engine INTERFACE cxx_std_20)

set(installed fsdp_engine fsdp_cuda_backend)
foreach(room core core/io core/ops kernels models comm comm/fsdp/home comm/fsdp optim tools/engine)
  fsdp_target(${room} name)
  list(APPEND installed ${name})
endforeach()
foreach(outside mpi onednn openmp liburing cuda)
  list(APPEND installed fsdp_${outside})
endforeach()
foreach(name IN LISTS installed)
  string(REGEX REPLACE "^fsdp_" "" short ${name})
  set_target_properties(${name} PROPERTIES EXPORT_NAME ${short})
endforeach()

# Includes name the path from the root of the repository: "tools/engine/session.h".
set(include ${CMAKE_INSTALL_INCLUDEDIR}/fsdp)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/fsdp)
install(DIRECTORY core kernels models comm optim DESTINATION ${include} FILES_MATCHING PATTERN "*.h")
install(DIRECTORY tools/engine DESTINATION ${include}/tools FILES_MATCHING PATTERN "*.h")
install(TARGETS ${installed} EXPORT fsdp-targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} INCLUDES DESTINATION ${include})
install(EXPORT fsdp-targets NAMESPACE fsdp:: DESTINATION ${package})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/fsdp-config.cmake.in
  ${PROJECT_BINARY_DIR}/fsdp-config.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/fsdp-config-version.cmake
  COMPATIBILITY ExactVersion)
install(FILES ${PROJECT_BINARY_DIR}/fsdp-config.cmake ${PROJECT_BINARY_DIR}/fsdp-config-version.cmake
        DESTINATION ${package})
