// What the machine does while a run trains: a thread samples its processors, its memory and the GPU
// of a rank, and writes a row of monitor.rank<r>.csv for each sample, later for each minute of
// them; on one rank of each host also a row of monitor.host.<host>.csv. It only looks: what is
// trained does not depend on it. Read next: load_samples.h. Not here: the readings
// themselves (tools/launch/host_load.h, kernels/cuda/device_sensors.h).
#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/memory_ledger.h"
#include "kernels/cuda/device_sensors.h"
#include "tools/launch/host_load.h"
#include "tools/report/load_samples.h"

namespace fsdp::tools {

struct MonitorOptions {
  std::filesystem::path file;
  std::filesystem::path host_file = {};  // "": another rank samples this host
  std::chrono::duration<double> interval{1};
  // The file's rows of one sample take up so much time, over all starts of a run; each row after
  // that is the mean of the samples of `later`. 0: all rows are of one sample.
  std::chrono::duration<double> detailed{3600}, later{60};
  std::optional<int> gpu = {};           // as CUDA numbers it; none: the CPU computes
  const MemoryLedger* ledger = nullptr;  // of the GPU's memory; outlives the monitor
  std::function<HostCounters()> counters = [] { return read_counters(); };
  DiskNumber disk = {};  // whose reads and writes count for the host
  std::function<HostActivity()> activity = [disk = disk] { return read_host_activity(disk); };
};

class Monitor {
 public:
  // The first row comes after one interval.
  explicit Monitor(MonitorOptions options);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // Ends the thread. What is left of the last interval makes a sample where it is half an interval
  // or more, or where there is none yet. Samples without a row get theirs. Twice is once.
  void stop();
  // After stop().
  const SampleSums& sums() const { return sums_; }
  // Why rows are missing; "": none are. A run does not end for it.
  const std::string& problem() const { return problem_; }

 private:
  using Clock = std::chrono::steady_clock;
  void run();
  void sample();
  bool takes_sample();

  MonitorOptions options_;
  std::optional<cuda::DeviceMonitor> gpu_;
  SampleFile rows_;
  std::optional<SampleFile> host_rows_;
  HostCounters before_;
  HostActivity activity_before_;
  Clock::time_point sampled_;
  SampleSums sums_;
  std::string problem_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;  // with the mutex
  bool gave_up_ = false;   // of the thread; after stop() of all
  std::thread thread_;
};

}  // namespace fsdp::tools
