// Looks into /proc: nothing else knows of the other ranks yet.
#include "tools/launch/start_watch.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include <unistd.h>

#include "comm/mpi_transport.h"
#include "tools/launch/backend_choice.h"
#include "tools/launch/interrupt.h"
#include "tools/launch/network_cards.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

fs::path program_of(const std::string& process) {
  std::error_code hidden;
  return fs::read_symlink("/proc/" + process + "/exe", hidden);
}

pid_t parent_of(const std::string& process) {
  std::ifstream status("/proc/" + process + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("PPid:")) return std::atoi(line.c_str() + 5);
  }
  return 0;
}

// "rank 3 (node1, process 4711)"
std::string name_of(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/environ", process));
  for (std::string variable; std::getline(file, variable, '\0');) {
    for (const std::string_view name : {"OMPI_COMM_WORLD_RANK=", "PMI_RANK=", "PMIX_RANK="}) {
      if (!variable.starts_with(name)) continue;
      return fmt::format("rank {} ({}, process {})", variable.substr(name.size()), host_name(),
                         process);
    }
  }
  return fmt::format("process {} ({})", process, host_name());
}

}  // namespace

std::vector<pid_t> sibling_processes() {
  const fs::path program = program_of("self");
  std::vector<pid_t> out;
  std::error_code hidden;
  for (const auto& entry : fs::directory_iterator("/proc", hidden)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const pid_t process = std::atoi(name.c_str());
    const bool other = process != ::getpid() && parent_of(name) == ::getppid();
    if (other && program_of(name) == program) out.push_back(process);
  }
  return out;
}

StartWatch::StartWatch(RankWatch& watch, Limits limits, Failed failed)
    : watch_(watch),
      limits_(limits),
      failed_(std::move(failed)),
      patience_(limits.start),
      silence_(limits.silence.count() > 0 ? limits.silence : std::chrono::seconds(8), 1,
               std::chrono::steady_clock::now()),
      timer_(watch.every(silence_.beat(), [this] { look(); })) {}

StartWatch::~StartWatch() { watch_.remove(timer_); }

void StartWatch::look() {
  if (!failed_) return;
  const std::string reason = reason_to_end();
  if (!reason.empty()) std::exchange(failed_, nullptr)(reason);
}

// A process that is stopped now may have been so for a moment: it has to be for the whole limit, in
// which this one ran. See [Note: who is silent] in heartbeat.h.
std::string StartWatch::reason_to_end() {
  const auto now = std::chrono::steady_clock::now();
  silence_.tick(now);
  if (waiting_signal() != 0 && !asked_) asked_ = now;
  if (asked_ && now - *asked_ > limits_.signal) ::_exit(status_after(waiting_signal()));
  pid_t now_stopped = 0;
  for (const pid_t process : sibling_processes()) {
    if (process_state(process) == "T") now_stopped = process;
  }
  if (now_stopped == 0 || now_stopped != stopped_) silence_.heard(0, now);
  stopped_ = now_stopped;
  if (limits_.silence.count() > 0 && silence_.silence(0, now) >= 1) {
    return fmt::format(
        "{}: no sign of life for {:g} s: its process is stopped; the job was at its start",
        name_of(stopped_), limits_.silence.count() / 1000.0);
  }
  if (!patience_.over()) return "";
  return fmt::format(
      "{} on {}: the processes of the job have not found each other within {:g} s "
      "(runtime.timeout_s): {}",
      name_of(::getpid()), describe(reaching(network_cards())), limits_.start.count() / 1000.0,
      comm::MpiRuntime::begun()
          ? "MPI_Init is done, but first messages do not arrive: does a firewall stand between the "
            "hosts? launch.interface chooses the network card"
          : "MPI_Init waits for all: has the launcher started them on every host?");
}

}  // namespace fsdp::tools
