// One GPU a rank, by host.
#include "tools/launch/backend_choice.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <set>

#include <unistd.h>

#include "comm/exchange.h"
#include "core/machine_error.h"
#include "core/text/counted.h"
#include "kernels/cpu/file_backend.h"
#include "kernels/cpu/wide_loop.h"
#include "tools/launch/host_load.h"

namespace fsdp::tools {
namespace {

constexpr int kAtOnce = 2;                               // collectives: a gather and a reduction
constexpr const char* kMatmulChoices = ".cache/matmul";  // beside .cache/tokens

// By rank, its GPU's place among the GPUs that it sees. Who sees fewest takes first, one that
// fewest have taken: ranks that all see the same take them in turn.
std::vector<size_t> take_gpus(const std::vector<RankGpus>& ranks) {
  std::vector<size_t> order(ranks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return ranks[a].gpus.size() < ranks[b].gpus.size(); });
  std::map<std::string, int> users;
  std::vector<size_t> taken(ranks.size());
  for (const size_t rank : order) {
    const std::vector<std::string>& gpus = ranks[rank].gpus;
    const auto least =
        std::min_element(gpus.begin(), gpus.end(),
                         [&](const auto& a, const auto& b) { return users[a] < users[b]; });
    ++users[*least];
    taken[rank] = static_cast<size_t>(least - gpus.begin());
  }
  return taken;
}

// NCCL tells GPUs apart by their addresses, which say nothing beyond their host.
bool any_shared(const std::vector<RankGpus>& ranks, const std::vector<size_t>& taken) {
  std::set<std::string> ids;
  std::set<std::pair<int, std::string>> addresses;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const std::string& id = ranks[r].gpus[taken[r]];
    ids.insert(id);
    addresses.emplace(ranks[r].first_of_host, id.substr(0, id.find(' ')));
  }
  return std::min(ids.size(), addresses.size()) < ranks.size();
}

// Error unless every rank has a GPU of its own.
void check_own_gpus(const std::vector<RankGpus>& ranks, const std::vector<size_t>& taken) {
  std::map<std::string, size_t> user;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const auto [other, alone] = user.emplace(ranks[r].gpus[taken[r]], r);
    if (alone) continue;
    int on_host = 0;
    std::set<std::string> seen;
    for (const RankGpus& each : ranks) {
      if (each.first_of_host != ranks[r].first_of_host) continue;
      ++on_host;
      seen.insert(each.gpus.begin(), each.gpus.end());
    }
    FSDP_CHECK(on_host <= static_cast<int>(seen.size()),
               "{} has {} and {}; --share-gpus lets ranks share one", ranks[r].host,
               counted(on_host, "rank"), counted(static_cast<int64_t>(seen.size()), "GPU"));
    fail(
        "ranks {} and {} on {} see no two different GPUs that are free; --share-gpus lets ranks "
        "share one",
        other->second, r, ranks[r].host);
  }
}

// To train on the CPU beside a GPU is hours that nobody wanted: whoever wants it says so.
[[noreturn]] void fail_unusable(const std::string& backend, const std::string& host,
                                const std::string& reason) {
  fail(
      "runtime.backend: {}, but {} has a GPU that this program cannot use: {}; --backend cpu "
      "computes without it",
      backend, host, reason);
}

}  // namespace

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string cpu_instruction_set() { return std::string(cpu::instruction_set()); }

std::unique_ptr<Backend> make_backend(const BackendOptions& options, DType compute) {
  if (options.meta) return std::make_unique<meta::MetaBackend>(*options.meta);
  FSDP_CHECK(compute != DType::kF64 || !options.only_cuda,
             "runtime.backend: cuda, but only the CPU computes f64");
  if (options.cuda && compute != DType::kF64) return cuda::make_backend(*options.cuda);
  return std::make_unique<cpu::CpuBackend>(options.cpu);
}

std::unique_ptr<Backend> make_host_backend(const BackendOptions& options, Backend& device) {
  if (options.meta) return dynamic_cast<meta::MetaBackend&>(device).make_host();
  cpu::CpuOptions cpu = options.cpu;
  cpu.compute_name = "host";
  if (!device.host_reaches_memory()) {
    cpu.memory = [&device](size_t bytes) { return device.staging_memory(bytes); };
  }
  return std::make_unique<cpu::CpuBackend>(std::move(cpu));
}

std::unique_ptr<Backend> make_file_backend(const BackendOptions& options, Backend& device,
                                           const std::string& owner) {
  if (options.meta) return dynamic_cast<meta::MetaBackend&>(device).make_file();
  return std::make_unique<cpu::FileBackend>(options.offload_folder, owner, options.cpu);
}

std::string file_notice(const Backend& file) {
  const auto* real = dynamic_cast<const cpu::FileBackend*>(&file);
  return real ? real->file().notice() : "";
}

std::unique_ptr<comm::Communicator> make_gpu_world(comm::Communicator& world,
                                                   const BackendOptions& options,
                                                   const Backend& backend) {
  if (!options.nccl || options.meta || backend.host_reaches_memory()) return nullptr;
  return comm::make_nccl_world(world, *options.nccl);
}

GpuChoice choose_gpu(const std::vector<RankGpus>& ranks, int rank, const std::string& backend,
                     bool share_gpus) {
  if (backend == "cpu") return {};
  for (const RankGpus& each : ranks) {
    if (each.of_machine && (each.unusable || backend == "cuda")) {
      throw MachineError(fmt::format("runtime.backend: {}, but the GPUs of {} do not answer: {}",
                                     backend, each.host, each.reason));
    }
    if (backend == "auto" && each.unusable) fail_unusable(backend, each.host, each.reason);
  }
  const auto has = [](const RankGpus& each) { return !each.gpus.empty(); };
  const auto with = std::ranges::find_if(ranks, has),
             without = std::ranges::find_if_not(ranks, has);
  if (without != ranks.end()) {
    FSDP_CHECK(backend != "cuda", "runtime.backend: cuda, but on {} {}", without->host,
               without->reason);
    FSDP_CHECK(with == ranks.end(),
               "runtime.backend: auto, but rank {} on {} has a GPU and rank {} on {} has none: {}; "
               "--backend cpu computes without GPUs",
               with - ranks.begin(), with->host, without - ranks.begin(), without->host,
               without->reason);
    // A program without CUDA surprises nobody.
    return {.note = cuda::built() ? fmt::format("the CPU computes: {}", without->reason) : ""};
  }
  const std::vector<size_t> taken = take_gpus(ranks);
  if (!share_gpus) check_own_gpus(ranks, taken);
  return {.cuda = cuda::CudaOptions{.device = static_cast<int>(taken[static_cast<size_t>(rank)])},
          .shared = any_shared(ranks, taken)};
}

void check_code(const GpuChoice& gpu, const std::string& backend) {
  if (!gpu.cuda) return;
  const std::string missing = cuda::missing_code(gpu.cuda->device);
  if (!missing.empty()) fail_unusable(backend, host_name(), missing);
}

void choose_products(const LaunchOptions& options, GpuChoice& gpu) {
  FSDP_CHECK(!options.tf32 || gpu.cuda, "runtime.tf32: only for GPUs, but the CPU computes");
  const bool timed = options.matmul_choice == "timed";
  FSDP_CHECK(!timed || gpu.cuda,
             "runtime.matmul_choice: timed is only for GPUs, but the CPU computes");
  if (!gpu.cuda) return;
  gpu.cuda->tf32 = options.tf32;
  if (timed) gpu.cuda->matmul_choices = kMatmulChoices;
}

void check_products(const BackendOptions& options, const std::vector<DType>& computed) {
  const bool f32 = std::find(computed.begin(), computed.end(), DType::kF32) != computed.end();
  FSDP_CHECK(f32 || !options.cuda || !options.cuda->tf32,
             "runtime.tf32: rounds products of f32, but the computation is in {}",
             name_of(computed.front()));
}

void choose_attention(comm::Communicator& world, const std::string& attention, GpuChoice& gpu) {
  if (attention == "auto") return;
  FSDP_CHECK(gpu.cuda, "runtime.attention: {} is only for GPUs, but the CPU computes", attention);
  if (attention == "own") {
    gpu.cuda->attention = cuda::AttentionChoice::kOwn;
    return;
  }
  const auto missing = comm::first_to_say(world, cuda::cudnn_missing());
  FSDP_CHECK(!missing, "runtime.attention: cudnn, but on rank {}: {}", missing->rank,
             missing->text);
  gpu.cuda->attention = cuda::AttentionChoice::kCudnn;
}

void check_attention(const BackendOptions& options, bool deterministic) {
  if (deterministic) return;
  FSDP_CHECK(options.cuda,
             "train.attention_deterministic: false is only for GPUs, but the CPU computes");
  const std::string missing = cuda::cudnn_missing();
  FSDP_CHECK(missing.empty(), "train.attention_deterministic: false is for cuDNN's attention: {}",
             missing);
}

TransportChoice choose_transport(comm::Communicator& world, const std::string& transport,
                                 const GpuChoice& gpu) {
  const bool wanted = transport == "nccl";
  FSDP_CHECK(!wanted || gpu.cuda,
             "runtime.gpu_transport: nccl is between GPUs, but the CPU computes");
  if (!gpu.cuda || transport == "host") return {};
  if (!wanted && (gpu.shared || world.size() == 1)) return {};
  if (const auto missing = comm::first_to_say(world, comm::nccl_missing())) {
    const auto& [rank, reason] = *missing;
    FSDP_CHECK(!wanted, "runtime.gpu_transport: nccl, but on rank {}: {}", rank, reason);
    return {false, fmt::format("collectives go through the host: rank {}: {}", rank, reason)};
  }
  if (gpu.shared) comm::check_shared_devices();
  return {true, gpu.shared ? "NCCL lets ranks share a GPU, which is an experiment of its own" : ""};
}

void divide_multiprocessors(int64_t per_collective, const TransportChoice& transport,
                            GpuChoice& gpu) {
  if (per_collective == 0) return;
  FSDP_CHECK(
      transport.nccl,
      "runtime.nccl_ctas: only for NCCL, but no collective uses NCCL here (runtime.gpu_transport)");
  gpu.cuda->products_leave = kAtOnce * static_cast<int>(per_collective);
}

std::vector<RankGpus> gpus_of_ranks(comm::Communicator& world, int first_of_host,
                                    const std::string& backend, const std::filesystem::path& root) {
  const cuda::DeviceCount mine = backend == "cpu" ? cuda::DeviceCount{} : cuda::count_devices();
  const bool unusable = mine.devices == 0 && backend != "cpu" &&
                        may_use_gpu(std::getenv("CUDA_VISIBLE_DEVICES"), root);
  const std::vector<int> unusable_of = comm::exchange_values(world, unusable ? 1 : 0);
  const std::vector<int> of_machine = comm::exchange_values(world, mine.of_machine ? 1 : 0);
  const std::vector<int> first = comm::exchange_values(world, first_of_host);
  std::vector<std::string> about = {host_name(), mine.reason};
  about.insert(about.end(), mine.ids.begin(), mine.ids.end());
  std::vector<RankGpus> ranks;
  for (const std::vector<std::string>& said : comm::exchange_texts(world, about)) {
    ranks.push_back({.first_of_host = first[ranks.size()],
                     .host = said[0],
                     .reason = said[1],
                     .gpus = {said.begin() + 2, said.end()},
                     .unusable = unusable_of[ranks.size()] != 0,
                     .of_machine = of_machine[ranks.size()] != 0});
  }
  return ranks;
}

}  // namespace fsdp::tools
