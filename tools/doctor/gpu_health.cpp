// The fields: man nvidia-smi, of drivers 390 to 580, which name some of them differently.
#include <algorithm>
#include <cctype>
#include <set>
#include <sstream>

#include <fmt/ranges.h>

#include "core/text/counted.h"
#include "tools/doctor/checks.h"

namespace fsdp::tools::doctor {
namespace {

// The text of an element, with the elements inside it; "": the element does not exist.
std::string inside(const std::string& xml, const std::string& tag) {
  const size_t open = xml.find("<" + tag + ">");
  if (open == std::string::npos) return "";
  const size_t begin = open + tag.size() + 2;
  const size_t end = xml.find("</" + tag + ">", begin);
  return end == std::string::npos ? "" : xml.substr(begin, end - begin);
}

bool says(const std::string& xml, const std::string& tag, const std::string& value) {
  const std::string text = inside(xml, tag);
  const size_t begin = text.find_first_not_of(" \n\t");
  return begin != std::string::npos && text.compare(begin, value.size(), value) == 0;
}

// 0 where the driver says no number.
long count_in(const std::string& xml, const std::string& tag) {
  return std::atol(inside(xml, tag).c_str());
}

struct Trouble {
  State state = State::kOk;
  std::vector<std::string> what;
  std::string fix;

  void add(State how, std::string said, const std::string& mended_by) {
    if (how > state) fix = mended_by;
    state = std::max(state, how);
    what.push_back(std::move(said));
  }
};

// Drivers before Ampere's count by bits and retire pages; later ones remap rows.
void look_at_memory(const std::string& gpu, const std::string& reset, const std::string& without,
                    Trouble& out) {
  const std::string errors = inside(inside(gpu, "ecc_errors"), "volatile");
  long wrong = count_in(inside(errors, "double_bit"), "total");
  for (const char* tag : {"dram_uncorrectable", "sram_uncorrectable", "sram_uncorrectable_parity",
                          "sram_uncorrectable_secded"}) {
    wrong += count_in(errors, tag);
  }
  const std::string rows = inside(gpu, "remapped_rows"), pages = inside(gpu, "retired_pages");
  if (says(rows, "remapped_row_failure", "Yes")) {
    out.add(State::kFail, "rows of its memory cannot be remapped any more", without);
  }
  if (says(rows, "remapped_row_pending", "Yes") || says(pages, "pending_retirement", "Yes") ||
      says(pages, "pending_blacklist", "Yes")) {
    out.add(State::kFail, "its memory waits for a reset to leave out a bad place", reset);
  }
  if (wrong > 0) {
    out.add(State::kWarn, counted(wrong, "uncorrectable ECC error") + " since its start", reset);
  }
}

void look_at_clocks(const std::string& gpu, const std::string& index, Trouble& out) {
  const struct {
    const char *reason, *what, *fix;
  } reasons[] = {
      {"hw_thermal_slowdown", "heat holds its clock down", "the fans, and the air or water"},
      {"sw_thermal_slowdown", "heat holds its clock down", "the fans, and the air or water"},
      {"hw_power_brake_slowdown", "the power supply holds its clock down", "the power supply"},
      {"hw_slowdown", "the hardware holds its clock down", "heat, and the power supply"}};
  for (const auto& [reason, what, fix] : reasons) {
    for (const char* form : {"clocks_event_reason_", "clocks_throttle_reason_"}) {
      if (!says(gpu, std::string(form) + reason, "Active")) continue;
      out.add(State::kWarn, what,
              fmt::format("nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE -i {}   # look at {}",
                          index, fix));
      return;
    }
  }
}

// "NVRM: Xid (PCI:0000:3b:00): 79, pid=...": numbers that speak of the hardware, as NVIDIA's list
// of Xid errors has them; others are the programs'.
void look_at_log(const std::string& log, std::string bus, const std::string& reset, Trouble& out) {
  static const std::set<int> kOfHardware = {46, 48, 61,  62,  63,  64,  74,  79, 92,
                                            94, 95, 119, 120, 136, 140, 143, 154};
  std::ranges::transform(bus, bus.begin(), [](unsigned char c) { return std::tolower(c); });
  bus = bus.substr(0, bus.find('.'));       // without the function
  if (bus.find(':') == 8) bus.erase(0, 4);  // the log's domain has four digits
  std::set<int> found;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    std::ranges::transform(line, line.begin(), [](unsigned char c) { return std::tolower(c); });
    const size_t at = line.find("xid (pci:" + bus + "): ");
    if (at == std::string::npos) continue;
    const int number = std::atoi(line.c_str() + line.find("): ", at) + 3);
    if (kOfHardware.contains(number)) found.insert(number);
  }
  if (found.empty()) return;
  out.add(State::kWarn, fmt::format("Xid {} since the host's start", fmt::join(found, ", ")),
          found.contains(79) ? "reboot   # the GPU has fallen off the bus" : reset);
}

void look_at_recovery(const std::string& gpu, const std::string& reset, Trouble& out) {
  for (const char* action : {"Reboot", "Reset", "Drain"}) {
    if (!says(gpu, "gpu_recovery_action", action)) continue;
    out.add(State::kFail, "the driver wants: " + inside(gpu, "gpu_recovery_action"),
            action == std::string_view("Reboot") ? "reboot" : reset);
  }
}

std::vector<std::string> gpus_in(const std::string& xml) {
  std::vector<std::string> out;
  for (size_t at = 0; (at = xml.find("<gpu id=", at)) != std::string::npos;) {
    const size_t end = std::min(xml.find("</gpu>", at), xml.size());
    out.push_back(xml.substr(at, end - at));
    at = end;
  }
  return out;
}

std::string bus_of(const std::string& gpu) {
  const size_t begin = gpu.find('"') + 1;
  return gpu.substr(begin, gpu.find('"', begin) - begin);
}

// Without one of them; the only one cannot be left out.
std::string leave_out(size_t index, size_t count) {
  if (count == 1) return "exchange GPU 0";
  std::vector<size_t> rest;
  for (size_t i = 0; i < count; ++i) {
    if (i != index) rest.push_back(i);
  }
  return fmt::format("export CUDA_VISIBLE_DEVICES={}   # GPU {} has to be exchanged",
                     fmt::join(rest, ","), index);
}

}  // namespace

Check health_check(const SmiOutput& said) {
  Check check = {.name = "GPU health", .value = said.there ? "" : "not known: no nvidia-smi"};
  if (!said.there) return check;
  const std::vector<std::string> gpus = gpus_in(said.text);
  if (said.status != 0) {
    const std::string why = said.text.substr(0, said.text.find('\n'));
    const bool none = why.find("No devices") != std::string::npos ||
                      why.find("communicate with the NVIDIA driver") != std::string::npos;
    check.value = fmt::format("nvidia-smi: {}", why.empty() ? "no answer" : why);
    if (!none) check.fault(State::kFail, "reboot   # nvidia-smi must answer");
    return check;
  }
  std::vector<std::string> texts;
  for (size_t i = 0; i < gpus.size(); ++i) {
    const std::string index = std::to_string(i);
    const std::string reset =
        fmt::format("nvidia-smi -r -i {}   # as root, when nothing runs on it; or reboot", index);
    Trouble trouble;
    look_at_recovery(gpus[i], reset, trouble);
    look_at_memory(gpus[i], reset, leave_out(i, gpus.size()), trouble);
    look_at_clocks(gpus[i], index, trouble);
    look_at_log(said.xids, bus_of(gpus[i]), reset, trouble);
    if (trouble.what.empty()) continue;
    texts.push_back(fmt::format("GPU {}: {}", i, fmt::join(trouble.what, ", ")));
    if (trouble.state > check.state) check.fault(trouble.state, trouble.fix);
  }
  check.value = texts.empty() ? fmt::format("{}, no fault is known", counted(gpus.size(), "GPU"))
                              : fmt::format("{}", fmt::join(texts, "; "));
  return check;
}

}  // namespace fsdp::tools::doctor
