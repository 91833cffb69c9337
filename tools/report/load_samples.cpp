// Counters become rates, samples become text and sums. Contract: tools/report/load_samples.h.
#include "tools/report/load_samples.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include "comm/exchange.h"
#include "core/error.h"

namespace fsdp::tools {
namespace {

constexpr double kMiB = 1 << 20, kPercent = 0.01;

std::optional<double> mebibytes(std::optional<double> bytes) {
  if (bytes) *bytes /= kMiB;
  return bytes;
}

// A column of a host behind its processors' load. A counter since the host was started becomes a
// rate.
struct HostQuantity {
  const char* column;
  HostActivity::Number HostActivity::*value;
  double unit;
  bool is_counter;
};
constexpr HostQuantity kHost[] = {
    {"load", &HostActivity::load, 1, false},
    {"ram_available_MiB", &HostActivity::memory_available, kMiB, false},
    {"swap_used_MiB", &HostActivity::swap_used, kMiB, false},
    {"cpu_stalled_%", &HostActivity::cpu_stalled, kPercent, true},
    {"memory_stalled_%", &HostActivity::memory_stalled, kPercent, true},
    {"io_stalled_%", &HostActivity::io_stalled, kPercent, true},
    {"net_received_MiB_per_s", &HostActivity::received, kMiB, true},
    {"net_sent_MiB_per_s", &HostActivity::sent, kMiB, true},
    {"infiniband_received_MiB_per_s", &HostActivity::infiniband_received, kMiB, true},
    {"infiniband_sent_MiB_per_s", &HostActivity::infiniband_sent, kMiB, true},
    {"tcp_retransmitted_per_s", &HostActivity::retransmitted, 1, true},
    {"disk_read_MiB_per_s", &HostActivity::read, kMiB, true},
    {"disk_written_MiB_per_s", &HostActivity::written, kMiB, true}};
static_assert(std::size(kHost) + 1 == kMostQuantities);

}  // namespace

// ---------------------------------------------------------------------------- One sample

std::span<const char* const> rank_columns() {
  static constexpr std::array kColumns = {"cpu_%",
                                          "process_cpu_%",
                                          "rss_MiB",
                                          "ram_used_MiB",
                                          "ram_total_MiB",
                                          "gpu_%",
                                          "gpu_allocated_MiB",
                                          "gpu_reserved_MiB",
                                          "gpu_used_MiB",
                                          "gpu_total_MiB",
                                          "gpu_W",
                                          "pcie_received_MiB_per_s",
                                          "pcie_sent_MiB_per_s"};
  return kColumns;
}

std::vector<const char*> host_columns() {
  std::vector<const char*> columns = {"cpu_%"};
  for (const HostQuantity& each : kHost) columns.push_back(each.column);
  return columns;
}

Sample sample_of_rank(const HostCounters& before, const HostCounters& now, double seconds,
                      int64_t ticks_per_s) {
  const HostLoad load = load_between(before, now, seconds, ticks_per_s);
  Sample sample;
  sample[kCpu] = load.cpu;
  sample[kProcessCpu] = load.process;
  sample[kResident] = now.resident / kMiB;
  sample[kRamUsed] = now.memory_used / kMiB;
  sample[kRamTotal] = now.memory_total / kMiB;
  return sample;
}

void add_gpu(Sample& sample, const cuda::DeviceLoad& load, size_t allocated) {
  sample[kGpu] = load.utilisation;
  sample[kGpuAllocated] = static_cast<double>(allocated) / kMiB;
  sample[kGpuReserved] = mebibytes(load.memory_pool);
  sample[kGpuUsed] = mebibytes(load.memory_used);
  sample[kGpuTotal] = mebibytes(load.memory_total);
  sample[kGpuPower] = load.power_w;
  sample[kPcieReceived] = mebibytes(load.pcie_received);
  sample[kPcieSent] = mebibytes(load.pcie_sent);
}

Sample sample_of_host(const HostActivity& before, const HostActivity& now, double seconds,
                      std::optional<double> cpu) {
  Sample sample = {cpu};
  for (size_t i = 0; i < std::size(kHost); ++i) {
    const auto& [column, value, unit, is_counter] = kHost[i];
    const HostActivity::Number &from = before.*value, &to = now.*value;
    if (!to || (is_counter && (!from || *to < *from || seconds <= 0))) continue;
    sample[i + 1] = is_counter ? (*to - *from) / seconds / unit : *to / unit;
  }
  return sample;
}

// ---------------------------------------------------------------------------- Sums

void SampleSums::add(const Sample& sample) {
  for (size_t i = 0; i < kMostQuantities; ++i) {
    if (!sample[i]) continue;
    of[i].count += 1;
    of[i].sum += *sample[i];
    of[i].squares += *sample[i] * *sample[i];
  }
}

void SampleSums::add(const SampleSums& other) {
  for (size_t i = 0; i < kMostQuantities; ++i) {
    of[i].count += other.of[i].count;
    of[i].sum += other.of[i].sum;
    of[i].squares += other.of[i].squares;
  }
}

Sample SampleSums::means() const {
  Sample means;
  for (size_t i = 0; i < kMostQuantities; ++i) {
    if (of[i].count > 0) means[i] = of[i].sum / of[i].count;
  }
  return means;
}

std::optional<Moments> SampleSums::moments(Quantity quantity) const {
  const Sum& sum = of[quantity];
  if (sum.count == 0) return std::nullopt;
  const double mean = sum.sum / sum.count;
  // Of equal samples the difference may be a little below 0.
  const double variance = std::max(sum.squares / sum.count - mean * mean, 0.0);
  return Moments{mean, std::sqrt(variance)};
}

SampleSums sums_of_ranks(comm::Communicator& world, const SampleSums& mine) {
  SampleSums all;
  for (const SampleSums& each : comm::exchange_values(world, mine)) all.add(each);
  return all;
}

// ---------------------------------------------------------------------------- The file

std::string csv_header(std::span<const char* const> columns) {
  std::string line = "time";
  for (const char* column : columns) line += fmt::format(",{}", column);
  return line;
}

std::string sample_row(std::string_view time, const Sample& sample, size_t columns, int digits) {
  std::string line(time);
  for (size_t i = 0; i < columns; ++i)
    line += sample[i] ? fmt::format(",{:.{}f}", *sample[i], digits) : ",";
  return line;
}

std::string time_now() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto since = now.time_since_epoch() % std::chrono::seconds(1);
  std::tm parts = {};
  ::gmtime_r(&seconds, &parts);
  char text[64] = "";
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:03}Z", text,
                     std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
}

SampleFile::SampleFile(const std::filesystem::path& path, std::span<const char* const> columns,
                       int digits, double detailed, double later)
    : columns_(columns.size()), digits_(digits), detailed_(detailed), later_(later) {
  try {
    log_ = LineLog(path);
    if (log_.is_empty()) log_.append(csv_header(columns));
    std::ifstream file(path);
    rows_ = std::count(std::istreambuf_iterator<char>(file), {}, '\n') - 1;
  } catch (const Error& error) {
    problem_ = error.what();
  }
}

void SampleFile::add(const Sample& sample) {
  row_.add(sample);
  ++samples_;
  const bool detailed = static_cast<double>(rows_) < detailed_;
  if (detailed || static_cast<double>(samples_) >= later_) write_row();
}

void SampleFile::finish() {
  if (samples_ > 0) write_row();
  log_.retry();
  if (problem_.empty()) problem_ = log_.problem();
}

void SampleFile::write_row() {
  log_.append(sample_row(time_now(), row_.means(), columns_, digits_));
  row_ = {};
  samples_ = 0;
  ++rows_;
}

}  // namespace fsdp::tools
