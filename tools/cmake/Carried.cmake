# FSDP_CARRIED=ON: programs for a machine that has none of this one's libraries (tools/gpu_prebuild.sh).
# C++ libraries are linked in, with C++'s own; the script carries the C ones, Open MPI above all.
# Not here: what is carried (tools/gpu_prebuild.sh). Read next: Dependencies.cmake.
option(FSDP_CARRIED "link C++ libraries into the programs, which are carried to another machine" OFF)
if(NOT FSDP_CARRIED)
  return()
endif()
set(CMAKE_SKIP_BUILD_RPATH ON)  # the carried libraries are found through LD_LIBRARY_PATH
add_link_options(-static-libstdc++ -static-libgcc LINKER:--as-needed)  # no C++ part of MPI

# What links TARGET gets ARCHIVE in the place of the shared library; headers and flags stay.
function(fsdp_link_archive target archive)
  get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${archive})
  foreach(configuration IN LISTS configurations)
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION_${configuration} ${archive})
  endforeach()
endfunction()

find_library(FSDP_YAML_ARCHIVE libyaml-cpp.a REQUIRED)
mark_as_advanced(FSDP_YAML_ARCHIVE)
fsdp_link_archive(yaml-cpp ${FSDP_YAML_ARCHIVE})

# Debian has no archive of fmt. Its headers hold all of the library but what libfmt's own source
# (src/format.cc) instantiates, and these are what this program needs of them.
get_target_property(fmt_type fmt::fmt TYPE)
if(fmt_type STREQUAL "SHARED_LIBRARY")
  set(fmt_source ${PROJECT_BINARY_DIR}/fmt_archive.cpp)
  file(CONFIGURE OUTPUT ${fmt_source} CONTENT "#include <fmt/format-inl.h>
FMT_BEGIN_NAMESPACE
namespace detail {
template auto dragonbox::to_decimal(float x) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double x) noexcept -> dragonbox::decimal_fp<double>;
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
template auto locale_ref::get<std::locale>() const -> std::locale;
}
FMT_END_NAMESPACE
")
  add_library(fsdp_fmt_archive STATIC ${fmt_source})
  target_include_directories(fsdp_fmt_archive SYSTEM PRIVATE
                             $<TARGET_PROPERTY:fmt::fmt,INTERFACE_INCLUDE_DIRECTORIES>)
  # A target that is built here has no fixed path before the build: the linker finds it by this one.
  set_target_properties(fsdp_fmt_archive PROPERTIES ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  fsdp_link_archive(fmt::fmt ${PROJECT_BINARY_DIR}/libfsdp_fmt_archive.a)
  add_dependencies(fmt::fmt fsdp_fmt_archive)
endif()
