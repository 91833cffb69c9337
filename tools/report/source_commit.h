// Which commit this program was built from. Its source is written by the build
// (tools/cmake/Commit.cmake).
#pragma once

#include <string>

namespace fsdp::tools {

// With "-dirty" behind it when files had changed; "unknown" when it was not built from a
// repository.
std::string source_commit();

}  // namespace fsdp::tools
