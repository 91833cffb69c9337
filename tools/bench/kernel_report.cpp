// Tables, JSON and CSV of measured kernels.
#include "tools/bench/kernel_report.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include <fmt/format.h>
#include <unistd.h>

#include "core/io/json.h"
#include "kernels/cuda/device_sensors.h"
#include "tools/launch/host_load.h"

namespace fsdp::tools {
namespace {

constexpr size_t kUnknownCache = size_t{32} << 20;  // where the machine hides it

DeviceReport report_cpu(int threads) {
  const CpuInfo info = parse_cpuinfo(proc::text_of("/proc/cpuinfo"));
  const size_t cache = last_caches("/sys/devices/system/cpu");
  DeviceReport report;
  report.backend = "cpu";
  report.name = info.name;
  report.threads = threads;
  report.cache_bytes = cache > 0 ? cache : kUnknownCache;
  report.clock_mhz = info.clock_mhz;
  return report;
}

DeviceReport report_gpu(const cuda::CudaOptions& options) {
  const cuda::DeviceSensors sensors = cuda::read_sensors(options.device);
  DeviceReport report;
  report.backend = "cuda";
  report.name = sensors.name;
  report.tf32 = options.tf32;
  report.cache_bytes = sensors.cache_bytes;
  report.clock_mhz = sensors.clock_mhz;
  report.memory_clock_mhz = sensors.memory_clock_mhz;
  report.power_w = sensors.power_w;
  return report;
}

}  // namespace

DeviceReport report_device(const Backend& backend, const BackendOptions& options) {
  return backend.name() == "cuda" ? report_gpu(*options.cuda) : report_cpu(options.cpu.threads);
}

size_t last_caches(const std::filesystem::path& cpus) {
  std::set<std::string> seen;  // the CPUs that share one
  size_t bytes = 0;
  std::error_code missing;
  for (int cpu = 0;; ++cpu) {
    const std::filesystem::path folder = cpus / fmt::format("cpu{}", cpu) / "cache";
    if (!std::filesystem::exists(folder, missing)) return bytes;
    std::filesystem::path last;
    int level = 0;
    for (const auto& each : std::filesystem::directory_iterator(folder, missing)) {
      const int its = std::atoi(proc::first_line_of(each.path() / "level").c_str());
      if (its > level) last = each.path(), level = its;
    }
    if (last.empty() || !seen.insert(proc::first_line_of(last / "shared_cpu_list")).second)
      continue;
    const std::string size = proc::first_line_of(last / "size");  // "32768K"
    const size_t unit = size.ends_with('K') ? 1u << 10 : size.ends_with('M') ? 1u << 20 : 1u;
    bytes += static_cast<size_t>(std::atoll(size.c_str())) * unit;
  }
}
namespace {

// What is said of one kernel, in the units of the output; 0: does not apply.
struct Figures {
  double gb_per_s, percent_of_copy, tflop_per_s, percent_of_product;
};

Figures figures(const KernelResult& kernel, const DeviceRates& rates) {
  return {.gb_per_s = kernel.bytes_per_s() * 1e-9,
          .percent_of_copy = 100 * kernel.bytes_per_s() / rates.copy_bytes_per_s,
          .tflop_per_s = kernel.flops_per_s() * 1e-12,
          .percent_of_product = 100 * kernel.flops_per_s() / rates.product_flops_per_s};
}

bool has_bar(const KernelReport& report, const KernelResult& kernel) {
  return report.device.backend == "cuda" &&
         (kernel.bar.percent_of_copy > 0 || kernel.bar.tflops > 0);
}

bool meets_bar(const KernelResult& kernel, const Figures& f) {
  return f.percent_of_copy >= kernel.bar.percent_of_copy && f.tflop_per_s >= kernel.bar.tflops;
}

std::string bar_text(const KernelReport& report, const KernelResult& kernel, const Figures& f) {
  if (!has_bar(report, kernel)) return "";
  const std::string bar = kernel.bar.tflops > 0
                              ? fmt::format("{} TFLOP/s", kernel.bar.tflops)
                              : fmt::format("{} % of copy", kernel.bar.percent_of_copy);
  return fmt::format("   {} {}", bar, meets_bar(kernel, f) ? "met" : "MISSED");
}

// "12.3" or blanks.
std::string cell(bool applies, int width, int digits, double value) {
  return applies ? fmt::format("{:>{}.{}f}", value, width, digits)
                 : std::string(static_cast<size_t>(width), ' ');
}

std::string known(const std::optional<double>& value, const char* unit) {
  return value ? fmt::format(", {:.0f} {}", *value, unit) : "";
}

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json head_json(const KernelReport& report) {
  const DeviceReport& device = report.device;
  return {{"device", device.name},
          {"backend", device.backend},
          {"threads", device.threads},
          {"tf32", device.tf32},
          {"clock_mhz", or_null(device.clock_mhz)},
          {"memory_clock_mhz", or_null(device.memory_clock_mhz)},
          {"power_w", or_null(device.power_w)},
          {"commit", report.commit},
          {"model", report.extents.model},
          {"shape", report.extents.shape},
          {"batch", report.extents.batch},
          {"seq", report.extents.length},
          {"documents", report.extents.documents},
          {"dtype", name_of(report.extents.dtype)},
          {"copy_bytes_per_s", report.bench.rates.copy_bytes_per_s},
          {"product_flops_per_s", report.bench.rates.product_flops_per_s}};
}

Json kernel_json(const KernelReport& report, const KernelResult& kernel) {
  const Figures f = figures(kernel, report.bench.rates);
  Json row = {{"kernel", kernel.name},
              {"extents", kernel.shape},
              {"calls", kernel.calls},
              {"input_sets", kernel.input_sets},
              {"us_least", kernel.seconds.least * 1e6},
              {"us_lower_quartile", kernel.seconds.lower_quartile * 1e6},
              {"us_median", kernel.seconds.median * 1e6},
              {"us_upper_quartile", kernel.seconds.upper_quartile * 1e6},
              {"bytes", kernel.cost.bytes},
              {"flops", kernel.cost.flops},
              {"bytes_per_s", kernel.bytes_per_s()},
              {"flops_per_s", kernel.flops_per_s()},
              {"percent_of_copy", f.percent_of_copy},
              {"percent_of_product", f.percent_of_product}};
  const bool bar = has_bar(report, kernel);
  row["bar_percent_of_copy"] = bar ? Json(kernel.bar.percent_of_copy) : Json(nullptr);
  row["bar_tflops"] = bar ? Json(kernel.bar.tflops) : Json(nullptr);
  row["bar_met"] = bar ? Json(meets_bar(kernel, f)) : Json(nullptr);
  return row;
}

// A value of a CSV line (RFC 4180): text in quotes, nothing for null.
std::string csv_value(const Json& value) {
  if (value.is_null()) return "";
  if (!value.is_string()) return value.dump();
  std::string quoted = "\"";
  for (const char c : value.get<std::string>()) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

std::string format_kernels(const KernelReport& report) {
  const DeviceReport& device = report.device;
  const DeviceRates& rates = report.bench.rates;
  std::string out = fmt::format(
      "{}{}{}{}{}, commit {}\n{}{}{}, {} x {} tokens, {}\n"
      "a copy {:.1f} GB/s, a large product {:.3f} TFLOP/s; medians, spread between quartiles\n\n",
      device.name,
      device.backend == "cpu"
          ? fmt::format(", {} thread{}", device.threads, device.threads == 1 ? "" : "s")
          : "",
      known(device.clock_mhz, "MHz"), known(device.memory_clock_mhz, "MHz memory"),
      known(device.power_w, "W"), report.commit, report.extents.model,
      report.extents.shape.empty() ? "" : " with ", report.extents.shape, report.extents.batch,
      report.extents.length,
      fmt::format("{}{}", name_of(report.extents.dtype), device.tf32 ? " (TF32 products)" : ""),
      rates.copy_bytes_per_s * 1e-9, rates.product_flops_per_s * 1e-12);
  size_t names = 6, shapes = 7;  // of their heads
  for (const KernelResult& kernel : report.bench.kernels) {
    names = std::max(names, kernel.name.size());
    shapes = std::max(shapes, kernel.shape.size());
  }
  out += fmt::format("{:<{}}  {:<{}}{:>11}{:>9}{:>9}{:>9}{:>10}{:>11}\n", "kernel", names,
                     "extents", shapes, "us", "spread", "GB/s", "of copy", "TFLOP/s", "of product");
  for (const KernelResult& kernel : report.bench.kernels) {
    const Figures f = figures(kernel, rates);
    const bool bytes = kernel.cost.bytes > 0, flops = kernel.cost.flops > 0;
    out += fmt::format("{:<{}}  {:<{}}{:>11.1f}{:>7.0f} %{}{}{}{}{}{}{}\n", kernel.name, names,
                       kernel.shape, shapes, kernel.seconds.median * 1e6, kernel.seconds.percent(),
                       cell(bytes, 9, 1, f.gb_per_s), cell(bytes, 7, 0, f.percent_of_copy),
                       bytes ? " %" : "", cell(flops, 10, 3, f.tflop_per_s),
                       cell(flops, 9, 0, f.percent_of_product), flops ? " %" : "",
                       bar_text(report, kernel, f));
  }
  return out;
}

std::string kernels_json(const KernelReport& report) {
  Json out = head_json(report);
  out["kernels"] = Json::array();
  for (const KernelResult& kernel : report.bench.kernels) {
    out["kernels"].push_back(kernel_json(report, kernel));
  }
  return out.dump({.indent = 1}) + "\n";
}

std::string kernels_csv(const KernelReport& report) {
  std::string out;
  for (const KernelResult& kernel : report.bench.kernels) {
    Json row = kernel_json(report, kernel);
    row.update(head_json(report));
    std::string names, values;
    for (const auto& [name, value] : row.items()) {
      const char* comma = names.empty() ? "" : ",";
      names.append(comma).append(name);
      values.append(comma).append(csv_value(value));
    }
    if (out.empty()) out = names + "\n";
    out += values + "\n";
  }
  return out;
}

}  // namespace fsdp::tools
