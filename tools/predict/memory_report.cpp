// Reading /proc and laying out the table.
#include "tools/predict/memory_report.h"

#include <fstream>

#include <fmt/format.h>

#include "tools/predict/memory_formula.h"

namespace fsdp::tools {

ProcessMemory process_memory() {
  ProcessMemory memory;
  std::ifstream status("/proc/self/status");
  std::string line;
  const auto bytes = [&] { return std::stoull(line.substr(line.find(':') + 1)) * 1024; };
  while (std::getline(status, line)) {
    if (line.starts_with("VmRSS:")) memory.resident = bytes();
    if (line.starts_with("VmHWM:")) memory.peak_resident = bytes();
  }
  return memory;
}

std::string format_memory_table(const MemoryReport& report) {
  const auto mib = [](size_t bytes) {
    return fmt::format("{:.2f}", static_cast<double>(bytes) / (1 << 20));
  };
  std::string out =
      fmt::format("{:<28} {:>11} {:>11}\n", "peak memory per rank (MiB)", "formula", "ledger");
  for (size_t i = 0; i < kMemoryCategories; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    if (report.predicted[i] == 0 && report.ledger.peak[i] == 0) continue;
    out += fmt::format("  {:<26} {:>11} {:>11}\n", name_of(category),
                       has_formula(category)
                           ? (report.upper_bound[i] ? "<= " : "") + mib(report.predicted[i])
                           : "-",
                       mib(report.ledger.peak[i]));
  }
  out += fmt::format("  {:<26} {:>11} {:>11}\n", "all at once", "", mib(report.ledger.total_peak));
  const std::string ranks =
      report.process_ranks == 1 ? "" : fmt::format(" ({} ranks)", report.process_ranks);
  const std::string trace =
      report.trace == 0 ? "" : fmt::format(", at least {} of them the trace", mib(report.trace));
  return out + fmt::format("  {:<26} {:>11} {:>11}   growth of RSS {} MiB{}\n",
                           "this process" + ranks, "", mib(report.process_ledger),
                           mib(report.resident_growth), trace);
}

}  // namespace fsdp::tools
