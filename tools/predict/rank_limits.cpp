// Contract: tools/predict/rank_limits.h.
#include "tools/predict/rank_limits.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "comm/exchange.h"
#include "tools/launch/gpu_memory.h"

namespace fsdp::tools {
namespace {

// Collective.
MemoryLimit least_of_all(comm::Communicator& world, const MemoryLimit& mine) {
  const std::vector<std::string> sources = world.exchange(mine.source);
  const std::vector<size_t> bytes = comm::exchange_values(world, mine.bytes);
  const auto least = std::min_element(bytes.begin(), bytes.end()) - bytes.begin();
  const std::string& source = sources[static_cast<size_t>(least)];
  // One host's ranks see alike, but for what their processes hold by now.
  const bool elsewhere = bytes[static_cast<size_t>(least)] < bytes.front() / 2;
  return {.bytes = bytes[static_cast<size_t>(least)],
          .source = elsewhere ? fmt::format("{}, on rank {}", source, least) : source};
}

}  // namespace

MemoryLimit limit_of_host(const RankContext& rank, const std::string& wanted) {
  const std::vector<std::string> hosts = rank.world.exchange(host_name());
  const auto here = static_cast<int>(std::count(hosts.begin(), hosts.end(), host_name()));
  const AvailableMemory available = available_memory();
  return least_of_all(
      rank.world,
      memory_limit(wanted, {.available = available,
                            .ranks = available.of_process ? rank.local_ranks : here,
                            .overhead = overhead_of_rank(available, rank.local_ranks)}));
}

MemoryLimit limit_of_gpu(const RankContext& rank, const std::string& wanted) {
  const int device = rank.backend.cuda->device;
  cuda::FreeMemory free;
  std::string mine;
  agree(rank.world, [&] {
    free = cuda::free_memory(device);
    mine = host_name() + " " + cuda::count_devices().ids.at(static_cast<size_t>(device));
  });
  const std::vector<std::string> all = rank.world.exchange(mine);
  MemoryShare share = {.available = {.bytes = free.bytes, .source = "free memory of " + free.name},
                       .ranks = static_cast<int>(std::count(all.begin(), all.end(), mine)),
                       .overhead = rank.backend.nccl && rank.world.size() > 1 ? kNcclBytes : 0,
                       .overhead_of = "NCCL"};
  return least_of_all(rank.world, memory_limit(wanted, share));
}

MemoryLimit limit_of_device(const RankContext& rank, const std::string& wanted) {
  return rank.backend.cuda ? limit_of_gpu(rank, wanted) : limit_of_host(rank, wanted);
}

}  // namespace fsdp::tools
