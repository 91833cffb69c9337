// Reading of /proc and of /sys/class/infiniband; proc(5) and the kernel's
// Documentation/accounting/psi and Documentation/ABI/stable/sysfs-class-infiniband name the fields.
#include "tools/launch/host_activity.h"

#include <sstream>
#include <vector>

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "tools/launch/proc_text.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;
using Number = HostActivity::Number;

void add(Number& sum, double value) { sum = sum.value_or(0) + value; }

Number first_of(const std::vector<uint64_t>& numbers, double unit) {
  return numbers.empty() ? Number() : unit * static_cast<double>(numbers[0]);
}

// Of cards that have a device: what a VLAN, a bond or a bridge carries counts at a card, too. Where
// none has one, as in a container, of all but the loopback.
void read_network(const fs::path& root, HostActivity& out) {
  HostActivity real;
  std::istringstream lines(proc::text_of(root / "proc/net/dev"));
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == line.npos) continue;  // the head
    std::string card;
    std::istringstream(line.substr(0, colon)) >> card;
    if (card == "lo") continue;
    const auto numbers = proc::numbers_in(std::string_view(line).substr(colon + 1));
    constexpr size_t kSent = 8;  // behind eight numbers of what was received
    if (numbers.size() <= kSent) continue;
    std::error_code none;
    const bool is_real = fs::exists(root / "sys/class/net" / card / "device", none);
    HostActivity& sums = is_real ? real : out;
    add(sums.received, static_cast<double>(numbers[0]));
    add(sums.sent, static_cast<double>(numbers[kSent]));
  }
  if (!real.received) return;
  out.received = real.received;
  out.sent = real.sent;
}

void read_infiniband(const fs::path& root, HostActivity& out) {
  constexpr double kBytes = 4;  // the counters count words of them
  std::error_code none;
  for (const auto& card : fs::directory_iterator(root / "sys/class/infiniband", none)) {
    for (const auto& port : fs::directory_iterator(card.path() / "ports", none)) {
      const auto count = [&](const char* name, Number& sum) {
        const std::string words = proc::text_of(port.path() / "counters" / name);
        if (const Number bytes = first_of(proc::numbers_in(words), kBytes)) add(sum, *bytes);
      };
      count("port_rcv_data", out.infiniband_received);
      count("port_xmit_data", out.infiniband_sent);
    }
  }
}

// "Tcp: NAME NAME ..." and below it "Tcp: 1 2 ...".
Number retransmitted(const std::string& snmp) {
  std::istringstream lines(snmp);
  for (std::string names; std::getline(lines, names);) {
    if (!names.starts_with("Tcp: ")) continue;
    std::string values;
    std::getline(lines, values);
    std::istringstream name_words(names), value_words(values);
    for (std::string name, value; name_words >> name && value_words >> value;) {
      if (name == "RetransSegs") return first_of(proc::numbers_in(value), 1);
    }
    break;
  }
  return {};
}

void read_disk(const fs::path& root, DiskNumber disk, HostActivity& out) {
  constexpr double kSector = 512;  // bytes, of any disk
  std::istringstream lines(proc::text_of(root / "proc/diskstats"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    DiskNumber number;
    std::string name;
    // reads, merged, sectors, ms; writes, merged, sectors
    double reads = 0, merged = 0, sectors_read = 0, ms = 0, writes = 0, sectors_written = 0;
    words >> number.major >> number.minor >> name;
    if (number.major != disk.major || number.minor != disk.minor) continue;
    words >> reads >> merged >> sectors_read >> ms >> writes >> merged >> sectors_written;
    if (!words) return;
    out.read = kSector * sectors_read;
    out.written = kSector * sectors_written;
    return;
  }
}

// "some avg10=0.00 avg60=0.00 avg300=0.00 total=MICROSECONDS"
Number stalled(const std::string& pressure) {
  const size_t total = pressure.find("total=");
  if (!pressure.starts_with("some ") || total == pressure.npos) return {};
  return first_of(proc::numbers_in(std::string_view(pressure).substr(total + 6)), 1e-6);
}

void read_memory(const fs::path& root, HostActivity& out) {
  const std::string text = proc::text_of(root / "proc/meminfo");
  const auto bytes = [&](std::string_view name) {
    return first_of(proc::numbers_of_line(text, name), 1024);
  };
  out.memory_available = bytes("MemAvailable:");
  const Number total = bytes("SwapTotal:"), free = bytes("SwapFree:");
  if (total && free) out.swap_used = *total - *free;
}

}  // namespace

DiskNumber disk_of(const fs::path& file) {
  struct ::stat status = {};
  if (::stat(file.c_str(), &status) != 0) return {};
  return {major(status.st_dev), minor(status.st_dev)};
}

HostActivity read_host_activity(DiskNumber disk, const fs::path& root) {
  HostActivity out;
  read_network(root, out);
  read_infiniband(root, out);
  out.retransmitted = retransmitted(proc::text_of(root / "proc/net/snmp"));
  read_disk(root, disk, out);
  out.cpu_stalled = stalled(proc::text_of(root / "proc/pressure/cpu"));
  out.memory_stalled = stalled(proc::text_of(root / "proc/pressure/memory"));
  out.io_stalled = stalled(proc::text_of(root / "proc/pressure/io"));
  double load = 0;
  if (std::istringstream(proc::text_of(root / "proc/loadavg")) >> load) out.load = load;
  read_memory(root, out);
  return out;
}

}  // namespace fsdp::tools
