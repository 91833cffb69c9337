// Comparison of measured kernels with an earlier run's JSON.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "core/io/json.h"
#include "tools/bench/kernel_report.h"

namespace fsdp::tools {
namespace {

using Key = std::pair<std::string, std::string>;  // name, extents

const Json& member(const Json& object, const char* key, const std::string& where) {
  FSDP_CHECK(object.is_object() && object.contains(key),
             "{}: {}: expected what bench kernels --json wrote, got no such key", where, key);
  return object[key];
}

// What would make times differ that is not the kernels.
void check_same(const Json& root, const char* key, const Json& now, const std::string& file) {
  const Json& then = member(root, key, file);
  FSDP_CHECK(then == now, "{}: {}: expected {} as in this run, got {}", file, key, now.dump(),
             then.dump());
}

std::map<Key, double> fastest_us(const Json& root, const std::string& file) {
  const Json& kernels = member(root, "kernels", file);
  FSDP_CHECK(kernels.is_array(), "{}: kernels: expected a list, got {}", file, kernels.type_name());
  std::map<Key, double> out;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const std::string where = fmt::format("{}: kernels[{}]", file, i);
    const Json& name = member(kernels[i], "kernel", where);
    const Json& extents = member(kernels[i], "extents", where);
    const Json& us = member(kernels[i], "us_least", where);
    FSDP_CHECK(name.is_string() && extents.is_string(),
               "{}: kernel, extents: expected text, got {}, {}", where, name.dump(),
               extents.dump());
    FSDP_CHECK(us.is_number() && us.get<double>() > 0,
               "{}: us_least: expected a positive number, got {}", where, us.dump());
    out[{name.get<std::string>(), extents.get<std::string>()}] = us.get<double>();
  }
  return out;
}

std::map<Key, double> read_baseline(const std::filesystem::path& baseline,
                                    const KernelReport& report) {
  const std::string file = baseline.string();
  const Json root = read_json_file(baseline);
  check_same(root, "backend", report.device.backend, file);
  check_same(root, "device", report.device.name, file);
  check_same(root, "threads", report.device.threads, file);
  check_same(root, "tf32", report.device.tf32, file);
  check_same(root, "dtype", std::string(name_of(report.extents.dtype)), file);
  return fastest_us(root, file);
}

}  // namespace

void check_baseline(const std::filesystem::path& baseline, const KernelReport& report) {
  static_cast<void>(read_baseline(baseline, report));
}

std::vector<KernelChange> BaselineComparison::slower(double tolerance_percent) const {
  std::vector<KernelChange> out;
  for (const KernelChange& change : kernels) {
    if (change.percent() > tolerance_percent) out.push_back(change);
  }
  return out;
}

BaselineComparison compare_with_baseline(const std::filesystem::path& baseline,
                                         const KernelReport& report) {
  std::map<Key, double> before = read_baseline(baseline, report);
  BaselineComparison out;
  for (const KernelResult& kernel : report.bench.kernels) {
    const auto found = before.find({kernel.name, kernel.shape});
    if (found == before.end()) {
      ++out.added;
      continue;
    }
    out.kernels.push_back({kernel.name, kernel.shape, found->second, kernel.seconds.least * 1e6});
    before.erase(found);
  }
  out.gone = before.size();
  FSDP_CHECK(!out.kernels.empty(), "{}: kernels: expected one that is measured now, got none",
             baseline.string());
  return out;
}

std::string format_comparison(const BaselineComparison& comparison, double tolerance_percent) {
  const std::vector<KernelChange> slower = comparison.slower(tolerance_percent);
  std::string out = fmt::format("\n{} of {} kernels slower than the baseline by more than {} %",
                                slower.size(), comparison.kernels.size(), tolerance_percent);
  if (comparison.added > 0) out += fmt::format("; {} are new", comparison.added);
  if (comparison.gone > 0) out += fmt::format("; {} were not measured now", comparison.gone);
  out += "\n";
  for (const KernelChange& change : slower) {
    out += fmt::format("  {} ({}): fastest {:.1f} us, was {:.1f} us: {:+.1f} %\n", change.name,
                       change.shape, change.now_us, change.before_us, change.percent());
  }
  return out;
}

}  // namespace fsdp::tools
