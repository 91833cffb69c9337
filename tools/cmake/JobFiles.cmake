# The shell text of a job of Slurm becomes a text in the program: build/job_files.cpp defines
# slurm_job_text() of tools/jobs/batch_file.h. Written when cmake runs, which a change of the file makes it do.
set(path ${PROJECT_SOURCE_DIR}/tools/jobs/slurm_job.sh.in)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
file(READ ${path} content)
fsdp_written_source(fsdp_tools_jobs job_files.cpp "// Written by the build.
#include \"tools/jobs/batch_file.h\"\n\nnamespace fsdp::tools {\n
std::string_view slurm_job_text() {\n  return R\"job_file(${content})job_file\";\n}\n
}  // namespace fsdp::tools\n")
