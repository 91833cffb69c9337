// Contract: tools/predict/memory_limit.h.
#include "tools/predict/memory_limit.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "comm/exchange.h"
#include "core/text/byte_size.h"
#include "tools/launch/gpu_memory.h"
#include "tools/predict/memory_report.h"

namespace fsdp::tools {
namespace {

// Stacks, code that oneDNN makes, tables of malloc: less than this in every run that was measured.
constexpr size_t kRest = size_t{32} << 20;
constexpr size_t kShown = 3;  // changes

std::string text_of(const Alternative& alternative) {
  return fmt::format("  fits with {}: {} ({})\n", alternative.change.flags(),
                     byte_size_text(alternative.bytes), describe(alternative.change.keeps));
}

}  // namespace

size_t overhead_of_rank(const AvailableMemory& available, int ranks_of_process) {
  if (available.is_left) return kRest;
  const ProcessMemory now = process_memory();
  const size_t held = available.of_process ? now.addresses : now.resident;
  return held / static_cast<size_t>(ranks_of_process) + kRest;
}

MemoryLimit memory_limit(const std::string& wanted, const MemoryShare& share) {
  const size_t part = share.available.bytes / static_cast<size_t>(share.ranks);
  MemoryLimit there = {
      .bytes = part - std::min(part, share.overhead),
      .source =
          fmt::format("{} of {}{}", byte_size_text(share.available.bytes), share.available.source,
                      share.ranks == 1 ? "" : fmt::format(" for {} ranks", share.ranks))};
  if (share.overhead > 0) {
    there.source +=
        fmt::format(", less {} for {}", byte_size_text(share.overhead), share.overhead_of);
  }
  if (wanted == "auto") return there;
  const auto given = static_cast<size_t>(parse_byte_size(wanted, "runtime.memory_limit"));
  return given <= there.bytes ? MemoryLimit{given, "runtime.memory_limit"} : there;
}

std::string refusal(const RunPlan& plan, const MemoryLimit& limit,
                    const std::optional<MemoryLimit>& host) {
  const PlannedRun run = plan.run();
  if (run.bytes <= limit.bytes) {
    const size_t offloaded = run.run->host_needed();
    if (!host || offloaded <= host->bytes) return "";
    return fmt::format(
        "what this run offloads needs {} of the host's memory per rank, the limit is {} ({})\n"
        "  less is on the host with another fsdp.offload (nvme: a file) and without "
        "train.recompute.mode=offload or checkpoint.async",
        byte_size_text(offloaded), byte_size_text(host->bytes), host->source);
  }
  const PeakMoment& moment = run.run->moment();
  std::string out =
      fmt::format("this run needs {} per rank, the limit is {} ({})\n", byte_size_text(run.bytes),
                  byte_size_text(limit.bytes), limit.source) +
      fmt::format("  the peak is in {}{}\n", moment.phase,
                  moment.unit.empty() ? "" : " of " + moment.unit);
  const FittingChanges found = plan.changes_that_fit(limit.bytes, kShown);
  for (const Alternative& each : found.fitting) out += text_of(each);
  if (found.fitting.empty()) {
    out += fmt::format("  no change was found that makes it fit; the least: {} with {}\n",
                       byte_size_text(found.least.bytes), found.least.change.flags());
  }
  out.pop_back();
  return out;
}
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
