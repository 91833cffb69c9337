// Initialisation and end of MPI.
#include "comm/mpi_transport.h"

#include <cstdlib>
#include <exception>
#include <string_view>

#include <mpi.h>

#include "comm/mpi_communicator.h"
#include "comm/mpi_library.h"
#include "comm/slurm_plugins.h"

namespace fsdp::comm {

struct MpiRuntime::Impl {
  bool began = false;  // MPI_Init was ours
  std::shared_ptr<MpiJob> job;
  std::unique_ptr<Communicator> world;
  int local_rank = 0;
  int local_size = 1;
  int first_of_host = 0;
  std::string host_name;
};

namespace {

std::string_view name_of_level(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE:
      return "single";
    case MPI_THREAD_FUNNELED:
      return "funneled";
    case MPI_THREAD_SERIALIZED:
      return "serialized";
    default:
      return "multiple";
  }
}

// Whether MPI was begun here and not by somebody before.
bool begin_mpi() {
  int initialized = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  if (initialized) {
    MPI_Query_thread(&level);
  } else {
    // Open MPI spins in blocking calls unless the launcher says that cores are oversubscribed; here
    // the compute threads need the core. Kept where the user chose otherwise. MPI is begun before
    // the program has threads, beside which setenv would not be safe.
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
  }
  FSDP_CHECK(level >= MPI_THREAD_MULTIPLE,
             "[mpi] thread level: expected multiple, got {}; this MPI was built or initialised "
             "without it",
             name_of_level(level));
  return !initialized;
}

std::string processor_name() {
  char name[MPI_MAX_PROCESSOR_NAME] = {};
  int length = 0;
  MPI_Get_processor_name(name, &length);
  return {name, static_cast<size_t>(length)};
}

}  // namespace

bool MpiRuntime::available() { return true; }

bool MpiRuntime::begun() {
  int begun = 0;
  MPI_Initialized(&begun);
  return begun != 0;
}

bool MpiRuntime::reaches_slurm() {
  const MpiLibrary library = mpi_library();
  return !library.version.starts_with("Open MPI") || library.file.empty() ||
         may_reach_slurm(library.file);
}

MpiRuntime::MpiRuntime(const HostMemoryOptions& options) : impl_(std::make_unique<Impl>()) {
  impl_->began = begin_mpi();
  impl_->host_name = processor_name();
  impl_->job = std::make_shared<MpiJob>(options);
  auto group = MpiGroup::duplicate(MPI_COMM_WORLD);
  const auto host = group->ranks_of_host();
  impl_->local_rank = host->rank();
  impl_->local_size = host->size();
  impl_->first_of_host = host->world_ranks().front();
  impl_->world = std::make_unique<MpiCommunicator>(impl_->job, std::move(group), "world");
}

// On an exception's way out the other ranks are still at work and MPI_Finalize would wait for them;
// without it the launcher ends the job.
MpiRuntime::~MpiRuntime() {
  impl_->world.reset();
  if (impl_->began && std::uncaught_exceptions() == 0) MPI_Finalize();
}

Communicator& MpiRuntime::world() { return *impl_->world; }
int MpiRuntime::local_rank() const { return impl_->local_rank; }
int MpiRuntime::local_size() const { return impl_->local_size; }
int MpiRuntime::first_of_host() const { return impl_->first_of_host; }
const std::string& MpiRuntime::host_name() const { return impl_->host_name; }

void MpiRuntime::abort(int code) {
  MPI_Abort(MPI_COMM_WORLD, code);
  fail("[mpi] MPI_Abort returned");
}

}  // namespace fsdp::comm
