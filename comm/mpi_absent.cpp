// Stands in for comm/mpi_*.cpp in a build without MPI.
#include "comm/mpi_library.h"
#include "comm/mpi_transport.h"

namespace fsdp::comm {

MpiLibrary mpi_library() { return {}; }

struct MpiRuntime::Impl {};

bool MpiRuntime::available() { return false; }
bool MpiRuntime::begun() { return false; }
bool MpiRuntime::reaches_slurm() { return false; }

MpiRuntime::MpiRuntime(const HostMemoryOptions&) {
  fail(
      "[mpi] this build has no MPI; run ranks as threads (--local-ranks N), or install MPI and "
      "configure again");
}

MpiRuntime::~MpiRuntime() = default;
Communicator& MpiRuntime::world() { fail("[mpi] not available"); }
int MpiRuntime::local_rank() const { return 0; }
int MpiRuntime::local_size() const { return 1; }
int MpiRuntime::first_of_host() const { return 0; }
const std::string& MpiRuntime::host_name() const { fail("[mpi] not available"); }
void MpiRuntime::abort(int) { fail("[mpi] not available"); }

}  // namespace fsdp::comm
