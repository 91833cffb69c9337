// Contract: tools/doctor/library_facts.h.
#include "tools/doctor/library_facts.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>

#include "comm/mpi_transport.h"
#include "comm/nccl_library.h"
#include "core/dynamic_library.h"
#include "core/error.h"
#include "kernels/cuda/cuda_devices.h"
#include "kernels/cuda/device_sensors.h"
#include "tools/doctor/host_facts.h"

namespace fsdp::tools::doctor {
namespace {

namespace fs = std::filesystem;

// What a command prints; "" where it cannot be started.
std::string output_of(const char* command) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command, "r"), ::pclose);
  std::string text;
  std::array<char, 4096> part{};
  for (size_t bytes = 1; pipe && bytes > 0;) {
    bytes = std::fread(part.data(), 1, part.size(), pipe.get());
    text.append(part.data(), bytes);
  }
  return text;
}

void read_gpus(const fs::path& root, LibraryFacts& facts) {
  const cuda::DeviceCount devices = cuda::count_devices();
  facts.cuda_built = cuda::built();
  facts.no_gpus = devices.reason;
  for (int device = 0; device < devices.devices; ++device) {
    const std::string& id = devices.ids[static_cast<size_t>(device)];
    const std::string address = id.substr(0, id.find(' '));
    facts.gpus.push_back({.name = cuda::read_sensors(device).name,
                          .numa_node = numa_node(root, address + ".0"),
                          .nvlinks = cuda::active_nvlinks(address)});
  }
  std::ifstream in(root / "proc/driver/nvidia/version");
  facts.driver = driver_version({std::istreambuf_iterator<char>(in), {}});
  if (devices.devices == 0) return;
  facts.cuda = cuda::installation();
  facts.no_cudnn = cuda::cudnn_missing();
  try {
    comm::nccl::library().get_version(&facts.nccl);
  } catch (const Error& error) {
    facts.no_nccl = error.what();
  }
}

// Its version is said by a library that may be open already, as a part of MPI.
std::string pmix_version() {
  try {
    const DynamicLibrary pmix("PMIx", {"libpmix.so.2"});
    const char* (*version)() = nullptr;
    pmix.find(version, "PMIx_Get_version");
    const std::string text = version();  // "OpenPMIx 4.2.2 (PMIx Standard: ...)"
    return text.substr(0, std::min(text.find(','), text.find(" (")));
  } catch (const Error&) {
    return "";
  }
}

bool has_slurm(const fs::path& root) {
  return std::getenv("SLURM_JOB_ID") || std::getenv("SLURM_CONF") ||
         fs::exists(root / "etc/slurm/slurm.conf");
}

}  // namespace

std::string driver_version(const std::string& text) {
  std::istringstream words(text.substr(0, text.find('\n')));
  for (std::string word; words >> word;) {
    if (word.find_first_not_of("0123456789.") == word.npos && word.find('.') != word.npos) {
      return word;
    }
  }
  return "";
}

LibraryFacts read_library_facts(const fs::path& root) {
  LibraryFacts facts;
  read_gpus(root, facts);
  facts.mpi = comm::mpi_library();
  if (facts.mpi.version.empty()) return facts;
  facts.mpi_reaches_slurm = comm::MpiRuntime::reaches_slurm();
  facts.pmix = pmix_version();
  const std::string version = output_of("mpirun --version 2>/dev/null");
  facts.mpirun = version.substr(0, version.find('\n'));
  const fs::path beside = facts.mpi.file.parent_path().parent_path() / "bin/mpirun";
  if (fs::exists(beside)) facts.own_mpirun = beside.string();
  if (has_slurm(root)) facts.srun = output_of("srun --mpi=list 2>&1 </dev/null");
  return facts;
}

}  // namespace fsdp::tools::doctor
