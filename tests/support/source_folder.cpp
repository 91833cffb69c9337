// source_folder: the build says where it is, to this file only (tools/cmake/Tests.cmake).
#include "tests/support/source_folder.h"

namespace fsdp::test {

std::filesystem::path source_folder() { return FSDP_SOURCE_DIR; }

}  // namespace fsdp::test
