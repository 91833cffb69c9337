// One function for each check. Contract: tools/doctor/checks.h.
#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/doctor/checks.h"

namespace fsdp::tools::doctor {
namespace {

constexpr const char* kInstallCuda = "tools/setup.sh --cuda && make";
constexpr const char* kBuildCuda = "tools/setup.sh --cuda && make CUDA=1";
constexpr const char* kUpdateDriver = "apt-get install nvidia-driver   # and start the host again";

// It is a fault where there is a driver, or where somebody expects GPUs.
Check no_gpus(const GpuFacts& facts) {
  Check check = {.name = "GPUs", .value = "none: " + facts.no_gpus, .number = 0};
  const auto because = [&](const char* part) {
    return facts.no_gpus.find(part) != std::string::npos;
  };
  if (!facts.cuda_built) check.fix = kBuildCuda;
  if (because("not yet initialized")) check.fix = "systemctl restart nvidia-fabricmanager";
  if (because("older than") || because("libcuda")) check.fix = kUpdateDriver;
  if (const auto found = facts.no_gpus.find("make CUDA=1 CUDA_ARCH="); found != std::string::npos) {
    check.fix = facts.no_gpus.substr(found, facts.no_gpus.find(" builds", found) - found);
  }
  if (!check.fix.empty() && (!facts.driver.empty() || !facts.hidden)) check.state = State::kWarn;
  return check;
}

Check gpus(const GpuFacts& facts) {
  if (facts.gpus.empty()) return no_gpus(facts);
  std::map<std::string, int> kinds;
  for (const Gpu& gpu : facts.gpus) ++kinds[gpu.name];
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

Check cuda(const GpuFacts& facts) {
  const cuda::Installation& found = facts.cuda;
  Check check = {.name = "CUDA", .value = "none"};
  if (facts.gpus.empty()) return check;
  check.value = fmt::format("{} (the driver knows {}), cuBLASLt {}", cuda_text(found.runtime),
                            cuda_text(found.driver), found.cublas);
  if (found.cublas == 0) return check.fault(State::kFail, kInstallCuda, ": not found");
  if (found.driver / 1000 >= found.runtime / 1000) return check;
  return check.fault(State::kFail, kUpdateDriver);
}

// `missing`: why it is not there.
Check library(const char* name, size_t version, const std::string& missing, const GpuFacts& facts) {
  Check check = {.name = name, .value = "none"};
  if (facts.gpus.empty()) return check;
  check.value = fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  if (missing.empty()) return check;
  check.value = missing;
  return check.fault(State::kWarn, kInstallCuda);
}

// GPUs of one kind have equally many links, unless one has failed, or bridges join some of them.
Check topology(const GpuFacts& facts) {
  Check check = {.name = "NVLink", .value = "none", .number = 0};
  if (facts.gpus.empty()) return check;
  std::vector<int> links, nodes;
  std::map<std::string, int> of_kind;
  bool differ = false;
  for (const Gpu& gpu : facts.gpus) {
    links.push_back(gpu.nvlinks);
    nodes.push_back(gpu.numa_node);
    differ |= of_kind.emplace(gpu.name, gpu.nvlinks).first->second != gpu.nvlinks;
  }
  const auto [least, most] = std::ranges::minmax(links);
  check.number = least;
  check.value = least == most ? fmt::format("{} links of each GPU", most)
                              : fmt::format("links of the GPUs: {}", fmt::join(links, ", "));
  if (std::ranges::max(nodes) >= 0) {
    check.value += fmt::format("; their NUMA nodes: {}", fmt::join(nodes, ", "));
  }
  if (!differ) return check;
  return check.fault(State::kWarn,
                     "systemctl restart nvidia-fabricmanager   # nvidia-smi nvlink --status");
}

// "4.1.4": the first number with points.
std::string version_in(const std::string& text) {
  const size_t point = text.find('.');
  if (point == std::string::npos || point == 0) return "";
  const size_t before = text.find_last_not_of("0123456789", point - 1);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  return text.substr(begin, text.find_first_not_of("0123456789.", begin) - begin);
}

// A launcher of another Open MPI cannot connect these ranks; where another one does, it need not.
Check mpirun(const MpiFacts& facts, bool launched) {
  Check check = {.name = "mpirun", .value = facts.mpirun.empty() ? "none" : facts.mpirun};
  const std::string of_library = version_in(facts.mpi.version), own = version_in(facts.mpirun);
  const auto is_open = [](const std::string& text) { return text.find("Open MPI") != text.npos; };
  if (facts.mpirun.empty() || !is_open(facts.mpi.version)) return check;
  if (is_open(facts.mpirun) &&
      own.substr(0, own.find('.')) == of_library.substr(0, of_library.find('.'))) {
    return check;
  }
  const std::string folder = facts.own_mpirun.substr(0, facts.own_mpirun.rfind('/'));
  return check.fault(
      launched || !facts.srun.value_or("").empty() ? State::kWarn : State::kFail,
      facts.own_mpirun.empty()
          ? fmt::format("module load openmpi/{}   # its mpirun must come first in PATH", of_library)
          : fmt::format("export PATH={}:$PATH", folder),
      fmt::format(", but this program has {}", facts.mpi.version));
}

Check srun(const MpiFacts& facts) {
  if (!facts.srun) return {.name = "srun", .value = "none"};
  if (!facts.srun->empty()) return {.name = "srun", .value = "--mpi=" + *facts.srun};
  return {.name = "srun",
          .value = "has no PMIx",
          .state = State::kWarn,
          .fix =
              "salloc ... mpirun fsdp ...   # srun --mpi=list: without pmix, srun cannot start "
              "ranks"};
}

}  // namespace

std::vector<Check> gpu_checks(const GpuFacts& facts) {
  const std::string driver = facts.driver.empty() ? "none" : facts.driver;
  return {gpus(facts),
          {.name = "driver", .value = driver},
          cuda(facts),
          library("cuDNN", facts.cuda.cudnn, facts.no_cudnn, facts),
          library("NCCL", static_cast<size_t>(facts.nccl), facts.no_nccl, facts),
          topology(facts)};
}

std::vector<Check> mpi_checks(const MpiFacts& facts, bool launched) {
  const std::string& mpi = facts.mpi.version;
  const std::string pmix = facts.pmix.empty() ? "a part of MPI" : facts.pmix;
  return {{.name = "MPI", .value = mpi.empty() ? "none: this program was built without MPI" : mpi},
          {.name = "PMIx", .value = mpi.empty() ? "none" : pmix},
          mpirun(facts, launched),
          srun(facts)};
}

}  // namespace fsdp::tools::doctor
