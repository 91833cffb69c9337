// One GPU a rank, by host.
#include "tools/runtime/backend_choice.h"

#include <algorithm>

#include <unistd.h>

namespace fsdp::tools {
namespace {

constexpr const char* kMatmulChoices = ".cache/matmul";  // beside .cache/tokens

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

RankGpus parse(const std::string& said) {  // host, count, reason: a line each
  const size_t first = said.find('\n'), second = said.find('\n', first + 1);
  return {said.substr(0, first), std::stoi(said.substr(first + 1)), said.substr(second + 1)};
}

}  // namespace

std::unique_ptr<Backend> make_backend(const BackendOptions& options, DType compute) {
  const bool gpu = options.cuda && (compute != DType::kF64 || options.only_cuda);
  if (gpu) return cuda::make_backend(*options.cuda);
  return std::make_unique<cpu::CpuBackend>(options.cpu);
}

std::unique_ptr<comm::Communicator> make_gpu_world(comm::Communicator& world,
                                                   const BackendOptions& options,
                                                   const Backend& backend) {
  if (!options.nccl || backend.host_reaches_memory()) return nullptr;
  return comm::make_nccl_world(world, *options.nccl);
}

GpuChoice choose_gpu(const std::vector<RankGpus>& ranks, int rank, const std::string& backend,
                     bool share_gpus) {
  FSDP_CHECK(backend.empty() || backend == "auto" || backend == "cpu" || backend == "cuda",
             "runtime.backend: expected auto, cpu or cuda, got \"{}\"", backend);
  if (backend == "cpu") return {};
  for (const RankGpus& each : ranks) {
    if (each.gpus > 0) continue;
    FSDP_CHECK(backend != "cuda", "runtime.backend: cuda, but on {} {}", each.host, each.reason);
    // A program without CUDA surprises nobody.
    return {.note = cuda::built() ? fmt::format("the CPU computes: {}", each.reason) : ""};
  }
  int place = 0;  // among the ranks of its host
  bool shared = false;
  const RankGpus& own = ranks[static_cast<size_t>(rank)];
  for (size_t r = 0; r < ranks.size(); ++r) {
    const auto same = [&](const RankGpus& other) { return other.host == ranks[r].host; };
    const auto on_host = std::count_if(ranks.begin(), ranks.end(), same);
    FSDP_CHECK(share_gpus || on_host <= ranks[r].gpus,
               "{} has {} ranks and {} GPUs; --share-gpus lets ranks share one", ranks[r].host,
               on_host, ranks[r].gpus);
    shared = shared || on_host > ranks[r].gpus;
    if (static_cast<int>(r) < rank && ranks[r].host == own.host) ++place;
  }
  return {.cuda = cuda::CudaOptions{.device = place % own.gpus}, .shared = shared};
}

void choose_products(const ProductOptions& options, GpuChoice& gpu) {
  FSDP_CHECK(!options.tf32 || gpu.cuda, "runtime.tf32: is of GPUs, but the CPU computes");
  FSDP_CHECK(options.choice.empty() || options.choice == "heuristic" || options.choice == "timed",
             "runtime.matmul_choice: expected heuristic or timed, got \"{}\"", options.choice);
  const bool timed = options.choice == "timed";
  FSDP_CHECK(!timed || gpu.cuda, "runtime.matmul_choice: timed is of GPUs, but the CPU computes");
  if (!gpu.cuda) return;
  gpu.cuda->tf32 = options.tf32;
  if (timed) gpu.cuda->matmul_choices = kMatmulChoices;
}

void check_products(const BackendOptions& options, const std::vector<DType>& computed) {
  const bool f32 = std::find(computed.begin(), computed.end(), DType::kF32) != computed.end();
  FSDP_CHECK(f32 || !options.cuda || !options.cuda->tf32,
             "runtime.tf32: rounds products of f32, but {} is computed in",
             name_of(computed.front()));
}

void choose_attention(comm::Communicator& world, const std::string& attention, GpuChoice& gpu) {
  const bool automatic = attention.empty() || attention == "auto";
  FSDP_CHECK(automatic || attention == "cudnn" || attention == "own",
             "runtime.attention: expected auto, cudnn or own, got \"{}\"", attention);
  if (automatic) return;
  FSDP_CHECK(gpu.cuda, "runtime.attention: {} is of GPUs, but the CPU computes", attention);
  if (attention == "own") {
    gpu.cuda->attention = cuda::AttentionChoice::kOwn;
    return;
  }
  const std::vector<std::string> missing = world.exchange(cuda::cudnn_missing());
  for (size_t r = 0; r < missing.size(); ++r) {
    FSDP_CHECK(missing[r].empty(), "runtime.attention: cudnn, but on rank {}: {}", r, missing[r]);
  }
  gpu.cuda->attention = cuda::AttentionChoice::kCudnn;
}

TransportChoice choose_transport(comm::Communicator& world, const std::string& transport,
                                 const GpuChoice& gpu) {
  const bool automatic = transport.empty() || transport == "auto";
  FSDP_CHECK(automatic || transport == "nccl" || transport == "host",
             "runtime.gpu_transport: expected auto, nccl or host, got \"{}\"", transport);
  const bool wanted = transport == "nccl";
  FSDP_CHECK(!wanted || gpu.cuda,
             "runtime.gpu_transport: nccl is between GPUs, but the CPU computes");
  if (!gpu.cuda || transport == "host") return {};
  if (automatic && (gpu.shared || world.size() == 1)) return {};
  const std::vector<std::string> missing = world.exchange(comm::nccl_missing());
  for (size_t r = 0; r < missing.size(); ++r) {
    if (missing[r].empty()) continue;
    FSDP_CHECK(!wanted, "runtime.gpu_transport: nccl, but on rank {}: {}", r, missing[r]);
    return {false, fmt::format("collectives go through the host: rank {}: {}", r, missing[r])};
  }
  if (gpu.shared) comm::check_shared_devices();
  return {true, gpu.shared ? "NCCL lets ranks share a GPU, which is an experiment of its own" : ""};
}

void divide_multiprocessors(int nccl_ctas, const TransportChoice& transport, GpuChoice& gpu) {
  if (nccl_ctas == 0) return;
  FSDP_CHECK(
      transport.nccl,
      "runtime.nccl_ctas: is of NCCL, which nothing is sent over here (runtime.gpu_transport)");
  gpu.cuda->products_leave = nccl_ctas;
}

std::vector<RankGpus> gpus_of_ranks(comm::Communicator& world, const std::string& backend) {
  const cuda::DeviceCount mine = backend == "cpu" ? cuda::DeviceCount{} : cuda::count_devices();
  std::vector<RankGpus> ranks;
  for (const std::string& said :
       world.exchange(fmt::format("{}\n{}\n{}", host_name(), mine.devices, mine.reason))) {
    ranks.push_back(parse(said));
  }
  return ranks;
}

}  // namespace fsdp::tools
