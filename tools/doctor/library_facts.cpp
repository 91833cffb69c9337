// Contract: tools/doctor/facts.h.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <sstream>

#include "comm/nccl_library.h"
#include "core/dynamic_library.h"
#include "core/error.h"
#include "kernels/cuda/cuda_devices.h"
#include "kernels/cuda/device_sensors.h"
#include "tools/doctor/facts.h"
#include "tools/launch/batch_job.h"
#include "tools/launch/host_load.h"
#include "tools/launch/shell.h"

namespace fsdp::tools::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kForMpirun(20), kForSmi(25), kForLog(3);

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

GpuFacts read_gpu_facts(const fs::path& root) {
  const cuda::DeviceCount devices = cuda::count_devices();
  GpuFacts facts = {.cuda_built = cuda::built(),
                    .no_gpus = devices.reason,
                    .driver = driver_version(proc::text_of(root / "proc/driver/nvidia/version")),
                    .hidden = !may_use_gpu(std::getenv("CUDA_VISIBLE_DEVICES"), root)};
  const std::map<std::string, int> nodes = numa_nodes_of_gpus(root);
  for (int device = 0; device < devices.devices; ++device) {
    const std::string& id = devices.ids[static_cast<size_t>(device)];
    const std::string address = id.substr(0, id.find(' '));
    const auto node = nodes.find(address + ".0");
    const std::string name = cuda::read_sensors(device).name;
    if (std::ranges::count(facts.gpus, name, &Gpu::name) == 0) {  // the first of its kind
      if (facts.no_gpus = cuda::missing_code(device); !facts.no_gpus.empty()) break;
    }
    facts.gpus.push_back({.name = name,
                          .numa_node = node == nodes.end() ? -1 : node->second,
                          .nvlinks = cuda::active_nvlinks(address)});
  }
  if (!facts.no_gpus.empty()) facts.gpus.clear();
  if (facts.gpus.empty()) return facts;
  facts.cuda = cuda::installation();
  facts.no_cudnn = cuda::cudnn_missing();
  try {
    comm::nccl::library().get_version(&facts.nccl);
  } catch (const Error& error) {
    facts.no_nccl = error.what();
  }
  return facts;
}

MpiFacts read_mpi_facts(const fs::path& root) {
  MpiFacts facts = {.mpi = comm::mpi_library()};
  if (facts.mpi.version.empty()) return facts;
  facts.pmix = pmix_version();
  const ShellOutput version =
      output_within(kForMpirun, {"sh", "-c", "mpirun --version 2>/dev/null"});
  FSDP_CHECK(version.status != 124, "mpirun --version: no answer within {} s", kForMpirun.count());
  facts.mpirun = version.text.substr(0, version.text.find('\n'));
  const fs::path beside = facts.mpi.file.parent_path().parent_path() / "bin/mpirun";
  if (fs::exists(beside)) facts.own_mpirun = beside.string();
  if (has_slurm(root)) facts.srun = asked_srun_plugin();
  return facts;
}

SmiOutput ask_nvidia_smi() {
  const ShellOutput smi = output_within(kForSmi, {"nvidia-smi", "-q", "-x"});
  SmiOutput out = {.there = smi.status != 127, .status = smi.status, .text = smi.text, .xids = {}};
  if (out.there)
    out.xids = output_within(kForLog, {"sh", "-c", "dmesg | grep -a 'Xid (PCI:'"}).text;
  return out;
}

}  // namespace fsdp::tools::doctor
