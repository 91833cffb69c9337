// Which MPI this program is linked with. May be asked before MPI is begun, and where it never is.
// Not here: how ranks use it (comm/mpi_transport.h).
#pragma once

#include <filesystem>
#include <string>

namespace fsdp::comm {

struct MpiLibrary {
  std::string version;         // "Open MPI v4.1.4"; "": this build has no MPI
  std::filesystem::path file;  // of the library; empty where the system does not say
};
MpiLibrary mpi_library();

}  // namespace fsdp::comm
