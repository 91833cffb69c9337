// Samples of what a rank and its machine do while a run trains, and of a whole host, which one rank
// of each host takes: a row of CSV each, later a row for the mean of several; and the mean and
// standard deviation over all ranks. Read next: monitor.h, which takes them. Not here: the readings
// themselves (tools/launch/host_load.h, kernels/cuda/device_sensors.h), the names
// of the means (metrics.h).
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "kernels/cuda/device_sensors.h"
#include "tools/launch/host_load.h"
#include "tools/report/line_log.h"

namespace fsdp::tools {

// The columns of a rank's file behind the time.
enum Quantity : size_t {
  kCpu,  // %, of all cores of the host
  kProcessCpu,
  kResident,
  kRamUsed,
  kRamTotal,
  kGpu,  // %, and so on: empty where the CPU computes
  kGpuAllocated,
  kGpuReserved,
  kGpuUsed,
  kGpuTotal,
  kGpuPower,
  kPcieReceived,
  kPcieSent
};
constexpr size_t kMostQuantities = 14;  // a host's file has so many columns
using Sample = std::array<std::optional<double>, kMostQuantities>;  // none: not known

std::span<const char* const> rank_columns();
Sample sample_of_rank(const HostCounters& before, const HostCounters& now, double seconds,
                      int64_t ticks_per_s);
// `allocated`: bytes that the ledger counts.
void add_gpu(Sample& sample, const cuda::DeviceLoad& load, size_t allocated);

std::vector<const char*> host_columns();
// Between two moments. A counter that has become smaller says nothing. `cpu`: see load_between().
Sample sample_of_host(const HostActivity& before, const HostActivity& now, double seconds,
                      std::optional<double> cpu);

struct Moments {
  double mean = 0, deviation = 0;
};
// Sums of samples, which ranks can add up.
struct SampleSums {
  struct Sum {
    double count = 0, sum = 0, squares = 0;
  };
  std::array<Sum, kMostQuantities> of{};

  void add(const Sample& sample);
  void add(const SampleSums& other);
  Sample means() const;
  // sqrt(E[x^2] - E[x]^2), of all samples of all ranks; none: there are no samples.
  std::optional<Moments> moments(Quantity quantity) const;
};
// Of all ranks, the same on every rank. Collective.
SampleSums sums_of_ranks(comm::Communicator& world, const SampleSums& mine);

// The file's first `detailed` rows, over all starts of a run, are of one sample each; each row
// after them is the mean of `later` samples. `digits`: behind the point.
class SampleFile {
 public:
  // Continues a file, or begins one with a header. A file that cannot be written is no error: the
  // means of the samples are needed all the same.
  SampleFile(const std::filesystem::path& path, std::span<const char* const> columns, int digits,
             double detailed, double later);
  void add(const Sample& sample);
  void finish();  // samples without a row get theirs
  // Why rows are missing; "": none are.
  const std::string& problem() const { return problem_; }

 private:
  void write_row();

  LineLog log_;
  size_t columns_;
  int digits_;
  double detailed_, later_;
  SampleSums row_;  // of the samples that have no row yet
  int64_t samples_ = 0;
  int64_t rows_ = 0;  // in the file, also of earlier starts
  std::string problem_;
};

// ---- parts, for tests ----
std::string csv_header(std::span<const char* const> columns);  // "time,..."
std::string sample_row(std::string_view time, const Sample& sample, size_t columns,
                       int digits = 1);  // "TIME,1.5,,..."
std::string time_now();                  // "2025-03-01T12:00:00.250Z"

}  // namespace fsdp::tools
