// The MPI that the program is linked with, where MPI is not begun.
// Requirements: S1.23.
#include "comm/mpi_library.h"

#include <doctest/doctest.h>

#include "comm/mpi_transport.h"

namespace fsdp::comm {
namespace {

TEST_CASE("MPI's library: a version and a file, or neither") {
  const MpiLibrary library = mpi_library();
  CHECK(library.version.empty() == !MpiRuntime::available());
  CHECK(library.version.find('\n') == std::string::npos);
  if (MpiRuntime::available()) CHECK(std::filesystem::is_regular_file(library.file));
}

}  // namespace
}  // namespace fsdp::comm
