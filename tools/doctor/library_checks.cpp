// One function for each check. Contract: tools/doctor/library_checks.h.
#include "tools/doctor/library_checks.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fsdp::tools::doctor {
namespace {

constexpr const char* kInstallCuda = "tools/setup.sh --cuda && make";
constexpr const char* kUpdateDriver = "apt-get install nvidia-driver   # and start the host again";

// It is a fault where there is a driver, or where somebody expects GPUs.
Check no_gpus(const LibraryFacts& facts) {
  Check check = {.name = "GPUs", .value = "none: " + facts.no_gpus, .number = 0};
  const auto because = [&](const char* part) {
    return facts.no_gpus.find(part) != std::string::npos;
  };
  if (!facts.cuda_built) check.fix = kInstallCuda;
  if (because("not yet initialized")) check.fix = "systemctl restart nvidia-fabricmanager";
  if (because("older than")) check.fix = kUpdateDriver;
  if (!check.fix.empty() && !facts.driver.empty()) check.state = State::kWarn;
  return check;
}

Check gpus(const LibraryFacts& facts) {
  if (facts.gpus.empty()) return no_gpus(facts);
  std::map<std::string, int> kinds;
  for (const GpuFacts& gpu : facts.gpus) ++kinds[gpu.name];
  std::vector<std::string> texts;
  for (const auto& [name, count] : kinds) texts.push_back(fmt::format("{} x {}", count, name));
  return {.name = "GPUs",
          .value = fmt::format("{}", fmt::join(texts, ", ")),
          .number = facts.gpus.size()};
}

// "13.0" of 13000
std::string cuda_text(int version) {
  return fmt::format("{}.{}", version / 1000, version / 10 % 100);
}

Check cuda(const LibraryFacts& facts) {
  const cuda::Installation& found = facts.cuda;
  Check check = {.name = "CUDA", .value = "none"};
  if (facts.gpus.empty()) return check;
  check.value = fmt::format("{} (the driver knows {}), cuBLASLt {}", cuda_text(found.runtime),
                            cuda_text(found.driver), found.cublas);
  if (found.cublas == 0) {
    check.value += ": not found";
    check.state = State::kFail;
    check.fix = kInstallCuda;
  } else if (found.driver / 1000 < found.runtime / 1000) {
    check.state = State::kFail;
    check.fix = kUpdateDriver;
  }
  return check;
}

Check cudnn(const LibraryFacts& facts) {
  Check check = {.name = "cuDNN", .value = "none"};
  if (facts.gpus.empty()) return check;
  const size_t version = facts.cuda.cudnn;
  check.value = fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  if (facts.no_cudnn.empty()) return check;
  check.value = facts.no_cudnn;
  check.state = State::kWarn;
  check.fix = kInstallCuda;
  return check;
}

Check nccl(const LibraryFacts& facts) {
  Check check = {.name = "NCCL", .value = "none"};
  if (facts.gpus.empty()) return check;
  check.value =
      fmt::format("{}.{}.{}", facts.nccl / 10000, facts.nccl / 100 % 100, facts.nccl % 100);
  if (facts.nccl > 0) return check;
  check.value = facts.no_nccl;
  check.state = State::kWarn;
  check.fix = kInstallCuda;
  return check;
}

// GPUs of one host have equally many links, where none has failed.
Check topology(const LibraryFacts& facts) {
  Check check = {.name = "NVLink", .value = "none", .number = 0};
  if (facts.gpus.empty()) return check;
  std::vector<int> links, nodes;
  for (const GpuFacts& gpu : facts.gpus) {
    links.push_back(gpu.nvlinks);
    nodes.push_back(gpu.numa_node);
  }
  const auto [least, most] = std::ranges::minmax(links);
  check.number = least;
  check.value = least == most ? fmt::format("{} links of each GPU", most)
                              : fmt::format("links of the GPUs: {}", fmt::join(links, ", "));
  if (std::ranges::max(nodes) >= 0) {
    check.value += fmt::format("; their NUMA nodes: {}", fmt::join(nodes, ", "));
  }
  if (least == most) return check;
  check.state = State::kFail;
  check.fix = "systemctl restart nvidia-fabricmanager   # nvidia-smi nvlink --status";
  return check;
}

// "4.1.4": the first number with points.
std::string version_in(const std::string& text) {
  const size_t point = text.find('.');
  if (point == std::string::npos || point == 0) return "";
  const size_t before = text.find_last_not_of("0123456789", point - 1);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  return text.substr(begin, text.find_first_not_of("0123456789.", begin) - begin);
}

// A launcher of another Open MPI cannot connect these ranks.
Check mpirun(const LibraryFacts& facts) {
  Check check = {.name = "mpirun", .value = facts.mpirun.empty() ? "none" : facts.mpirun};
  const std::string of_library = version_in(facts.mpi.version), own = version_in(facts.mpirun);
  const auto is_open = [](const std::string& text) { return text.find("Open MPI") != text.npos; };
  if (facts.mpirun.empty() || !is_open(facts.mpi.version)) return check;
  if (is_open(facts.mpirun) &&
      own.substr(0, own.find('.')) == of_library.substr(0, of_library.find('.'))) {
    return check;
  }
  check.value += fmt::format(", but this program has {}", facts.mpi.version);
  check.state = State::kFail;
  const std::string folder = facts.own_mpirun.substr(0, facts.own_mpirun.rfind('/'));
  check.fix =
      facts.own_mpirun.empty()
          ? fmt::format("module load openmpi/{}   # its mpirun must come first in PATH", of_library)
          : fmt::format("export PATH={}:$PATH", folder);
  return check;
}

Check srun(const LibraryFacts& facts) {
  Check check = {.name = "srun", .value = "none"};
  if (facts.srun.empty()) return check;
  const bool pmix = facts.srun.find("pmix") != std::string::npos;
  check.value = pmix ? "has PMIx" : "has no PMIx";
  if (pmix || facts.mpi_reaches_slurm) return check;
  check.state = State::kWarn;
  check.fix =
      "salloc ... mpirun fsdp ...   # srun --mpi=list: without pmix, srun cannot start ranks";
  return check;
}

}  // namespace

std::vector<Check> library_checks(const LibraryFacts& facts) {
  const std::string& mpi = facts.mpi.version;
  std::string pmix = facts.pmix.empty() ? "a part of MPI" : facts.pmix;
  return {gpus(facts),
          {.name = "driver", .value = facts.driver.empty() ? "none" : facts.driver},
          cuda(facts),
          cudnn(facts),
          nccl(facts),
          topology(facts),
          {.name = "MPI", .value = mpi.empty() ? "none: this program was built without MPI" : mpi},
          {.name = "PMIx", .value = mpi.empty() ? "none" : pmix},
          mpirun(facts),
          srun(facts)};
}

}  // namespace fsdp::tools::doctor
