// Reading /proc and laying out the table.
#include "tools/predict/memory_report.h"

#include <fstream>

#include <fmt/format.h>

#include "tools/predict/unit_table.h"

namespace fsdp::tools {

ProcessMemory process_memory() {
  ProcessMemory memory;
  std::ifstream status("/proc/self/status");
  std::string line;
  const auto bytes = [&] { return std::stoull(line.substr(line.find(':') + 1)) * 1024; };
  while (std::getline(status, line)) {
    if (line.starts_with("VmRSS:")) memory.resident = bytes();
    if (line.starts_with("VmSize:")) memory.addresses = bytes();
    if (line.starts_with("VmHWM:")) memory.peak_resident = bytes();
  }
  return memory;
}

const char* rest_name(bool on_gpu) { return on_gpu ? "kernels' workspace" : "gaps between blocks"; }

size_t rest_of(size_t held, size_t counted) { return held > counted ? held - counted : 0; }

namespace {

size_t gaps_of(const MemoryUsage& usage) {
  return rest_of(usage.held_peak, usage.predictable_peak + usage.scratch);
}

size_t states_of(const MemoryUsage& usage) {
  size_t sum = 0;
  for (const MemoryCategory category :
       {MemoryCategory::kParameterShard, MemoryCategory::kUnshardedParameter,
        MemoryCategory::kGradient, MemoryCategory::kOptimizerState}) {
    sum += usage.peak[static_cast<size_t>(category)];
  }
  return sum;
}

// From what the ledger counts to what the machine must have, and back to what a formula says.
std::string format_held(const MemoryReport& report, const std::string& most) {
  const MemoryUsage &predicted = report.predicted, &ledger = report.ledger;
  std::string out;
  const auto row = [&](const char* name, size_t said, size_t was, const std::string& note = "") {
    if (said > 0 || was > 0) {
      out += fmt::format("  {:<26} {:>11} {:>11}{}\n", name, most + mib(said), mib(was), note);
    }
  };
  row("kernel scratch", predicted.scratch, ledger.scratch);
  row(rest_name(report.on_gpu), gaps_of(predicted), gaps_of(ledger));
  row("in all", predicted.held_peak, ledger.held_peak);
  if (report.formula_states > 0) {
    row("of these model states", states_of(predicted), states_of(ledger),
        fmt::format("   ZeRO's formula, {}, counts neither padding nor gathered units",
                    mib(report.formula_states)));
  }
  return out;
}

// Of another place than the device.
std::string format_place(const char* where, const MemoryUsage& predicted,
                         const MemoryUsage& ledger) {
  if (predicted.total_peak == 0 && ledger.total_peak == 0) return "";
  std::string out = fmt::format("{}\n", where);
  const auto row = [&](std::string_view name, size_t said, size_t was) {
    if (said == 0 && was == 0) return;
    out += fmt::format("  {:<26} {:>11} {:>11}\n", name, mib(said), mib(was));
  };
  for (size_t i = 0; i < kMemoryCategories; ++i) {
    row(name_of(static_cast<MemoryCategory>(i)), predicted.peak[i], ledger.peak[i]);
  }
  row("kernel scratch", predicted.scratch, ledger.scratch);
  row(rest_name(false), gaps_of(predicted), gaps_of(ledger));
  row("in all", predicted.held_peak, ledger.held_peak);
  return out;
}

}  // namespace

std::string format_memory_table(const MemoryReport& report) {
  std::string out =
      fmt::format("{:<28} {:>11} {:>11}\n", "peak memory per rank (MiB)", "predicted", "ledger");
  const std::string most = report.at_most || report.on_gpu ? "<= " : "";
  for (size_t i = 0; i < kMemoryCategories; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    if (report.predicted.peak[i] == 0 && report.ledger.peak[i] == 0) continue;
    const bool staging = category == MemoryCategory::kTransportStaging;
    const bool bound = (report.at_most && category == MemoryCategory::kActivation) ||
                       (report.on_gpu && category == MemoryCategory::kWorkspace);
    out += fmt::format("  {:<26} {:>11} {:>11}\n", name_of(category),
                       staging ? "-" : (bound ? "<= " : "") + mib(report.predicted.peak[i]),
                       mib(report.ledger.peak[i]));
  }
  out += fmt::format("  {:<26} {:>11} {:>11}\n", "all at once",
                     (report.at_most ? "<= " : "") + mib(report.predicted.predictable_peak),
                     mib(report.ledger.predictable_peak));
  out += format_held(report, most) +
         format_place("on the host", report.predicted_host, report.host) +
         format_place("in its file", report.predicted_file, report.file);
  const std::string ranks =
      report.process_ranks == 1 ? "" : fmt::format(" ({} ranks)", report.process_ranks);
  const std::string trace =
      report.trace == 0 ? "" : fmt::format(", at least {} of them the trace", mib(report.trace));
  return out + fmt::format("  {:<26} {:>11} {:>11}   growth of RSS {} MiB{}\n",
                           "this process" + ranks, "", mib(report.process_ledger),
                           mib(report.resident_growth), trace);
}

std::string format_predicted_memory(const MetaRun& run) {
  const MemoryUsage all = run.usage();
  const PeakMoment& moment = run.moment();
  std::string out = fmt::format("{:<26}{:>12}", "memory per rank (MiB)", "peak");
  for (const PhaseMemory& phase : run.phases()) out += fmt::format("{:>12}", phase.name);
  out += fmt::format("{:>15}\n", "at the most");
  for (size_t i = 0; i < kMemoryCategories; ++i) {
    if (all.peak[i] == 0) continue;
    out += fmt::format("  {:<24}{:>12}", name_of(static_cast<MemoryCategory>(i)), mib(all.peak[i]));
    for (const PhaseMemory& phase : run.phases()) {
      out += fmt::format("{:>12}", mib(phase.usage.peak[i]));
    }
    out += fmt::format("{:>15}\n", mib(moment.memory[i]));
  }
  out += fmt::format("  {:<24}{:>12}", "all at once", mib(all.total_peak));
  for (const PhaseMemory& phase : run.phases()) {
    out += fmt::format("{:>12}", mib(phase.usage.total_peak));
  }
  out += fmt::format("{:>15}\n", mib(all.total_peak));
  out += fmt::format("  the most: in {}{}\n", moment.phase,
                     moment.unit.empty() ? "" : " of " + moment.unit);
  const auto elsewhere = [&](const char* where, const MemoryUsage& usage) {
    if (usage.total_peak == 0) return;
    out += fmt::format("  {}:", where);
    for (size_t i = 0; i < kMemoryCategories; ++i) {
      if (usage.peak[i] == 0) continue;
      out += fmt::format(" {} {},", name_of(static_cast<MemoryCategory>(i)), mib(usage.peak[i]));
    }
    out += fmt::format(" in all {}\n", mib(usage.total_peak));
  };
  elsewhere("on the host", run.host_usage());
  elsewhere("in its file", run.file_usage());
  return out +
         "  without the transport's staging: none between threads and with NCCL, else a few "
         "hundred KiB a group\n";
}

}  // namespace fsdp::tools
