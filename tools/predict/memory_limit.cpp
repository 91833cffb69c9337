// Contract: tools/predict/memory_limit.h.
#include "tools/predict/memory_limit.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/text/byte_size.h"
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
      fmt::format("  most is held in {}{}\n", moment.phase,
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

}  // namespace fsdp::tools
