// What is printed of measured kernels, the comparison with an earlier run, and of the device.
#include "tools/bench/kernel_report.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

using test::contains;

// A copy of 10 GB/s; a kernel that moves 8 MB in 1 ms, one of 3 GFLOP in 10 ms.
KernelReport report(const std::string& backend = "cpu") {
  KernelReport out;
  out.device.backend = backend;
  out.device.name = "A \"quick\" CPU";
  out.device.threads = 2;
  out.device.clock_mhz = 3000;
  out.commit = "abc";
  out.bench.rates = {.copy_bytes_per_s = 10e9, .product_flops_per_s = 0.5e12};
  const auto spread = [](double s) { return Spread{0.9 * s, s, s, 1.2 * s}; };
  out.bench.kernels = {
      {"pass", "4 x 5", {.bytes = 8'000'000}, kStreamingBar, 3, 9, spread(1e-3)},
      {"product", "6 x 7", {.flops = 3'000'000'000, .bytes = 1000}, {}, 2, 7, spread(10e-3)}};
  return out;
}

// The report's JSON, with `us_least` of its kernels multiplied.
std::filesystem::path write_baseline(const test::TempFolder& folder, double pass, double product) {
  Json root = parse_json(kernels_json(report()), "report");
  root["kernels"][0]["us_least"] = root["kernels"][0]["us_least"].get<double>() * pass;
  root["kernels"][1]["us_least"] = root["kernels"][1]["us_least"].get<double>() * product;
  return folder.write("baseline.json", root.dump());
}

}  // namespace

TEST_CASE("kernel report: figures in JSON") {
  const Json root = parse_json(kernels_json(report()), "report");
  CHECK(root["device"] == "A \"quick\" CPU");
  CHECK(root["threads"] == 2);
  CHECK(root["clock_mhz"] == 3000);
  CHECK(root["power_w"].is_null());
  CHECK(root["commit"] == "abc");
  const Json& pass = root["kernels"][0];
  CHECK(pass["us_median"].get<double>() == doctest::Approx(1000));
  CHECK(pass["us_least"].get<double>() == doctest::Approx(900));
  CHECK(pass["bytes_per_s"].get<double>() == doctest::Approx(8e9));
  CHECK(pass["percent_of_copy"].get<double>() == doctest::Approx(80));
  CHECK(pass["bar_met"].is_null());  // bars are of GPUs
  const Json& product = root["kernels"][1];
  CHECK(product["flops_per_s"].get<double>() == doctest::Approx(0.3e12));
  CHECK(product["percent_of_product"].get<double>() == doctest::Approx(60));
}

TEST_CASE("kernel report: bars of a GPU, met and missed") {
  KernelReport gpu = report("cuda");
  CHECK(parse_json(kernels_json(gpu), "report")["kernels"][0]["bar_met"] == true);
  CHECK(contains(format_kernels(gpu), "80 % of copy met"));
  gpu.bench.rates.copy_bytes_per_s = 10.1e9;
  CHECK(parse_json(kernels_json(gpu), "report")["kernels"][0]["bar_met"] == false);
  CHECK(contains(format_kernels(gpu), "80 % of copy MISSED"));
  gpu.bench.kernels[1].bar = kAttentionForwardBar;  // 0.3 of 210 TFLOP/s
  CHECK(contains(format_kernels(gpu), "210 TFLOP/s MISSED"));
  CHECK(!contains(format_kernels(report()), "met"));
}

TEST_CASE("kernel report: CSV has as many values as names, and quotes texts") {
  const std::string csv = kernels_csv(report());
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 3);
  CHECK(csv.starts_with("kernel,extents,calls,"));
  CHECK(contains(csv, "\n\"pass\",\"4 x 5\",9,"));
  CHECK(contains(csv, "\"A \"\"quick\"\" CPU\""));
  const std::string head = csv.substr(0, csv.find('\n'));
  const std::string first =
      csv.substr(head.size() + 1, csv.find('\n', head.size() + 1) - head.size() - 1);
  CHECK(std::count(head.begin(), head.end(), ',') == std::count(first.begin(), first.end(), ','));
}

TEST_CASE("kernel report: the table has a line per kernel and the rates") {
  const std::string text = format_kernels(report());
  CHECK(contains(text, "a copy 10.0 GB/s, a large product 0.500 TFLOP/s"));
  CHECK(contains(text, "3000 MHz"));
  CHECK(contains(text, "\npass     4 x 5       1000.0     20 %      8.0     80 %"));
  CHECK(contains(text, "0.300       60 %\n"));
}

TEST_CASE("baseline: kernels that are slower by more than the tolerance") {
  const test::TempFolder folder;
  BaselineComparison comparison = compare_with_baseline(write_baseline(folder, 0.8, 1.0), report());
  CHECK(comparison.kernels.size() == 2);
  CHECK(comparison.slower(10).size() == 1);
  CHECK(comparison.slower(10)[0].name == "pass");
  CHECK(comparison.slower(10)[0].percent() == doctest::Approx(25));
  CHECK(comparison.slower(30).empty());
  CHECK(contains(format_comparison(comparison, 10),
                 "1 of 2 kernels slower than the baseline by more than 10 %\n"
                 "  pass (4 x 5): fastest 900.0 us, was 720.0 us: +25.0 %\n"));
  KernelReport other = report();
  other.bench.kernels[1].shape = "8 x 9";
  comparison = compare_with_baseline(write_baseline(folder, 2, 2), other);
  CHECK(comparison.slower(0).empty());  // both faster than the doubled times
  CHECK(comparison.added == 1);
  CHECK(comparison.gone == 1);
}

TEST_CASE("baseline: files that cannot be compared are named with the reason") {
  const test::TempFolder folder;
  const auto error = [&](const std::string& content, const KernelReport& now) {
    const auto path = folder.write("b.json", content);
    return test::error_of([&] { compare_with_baseline(path, now); });
  };
  const std::string good = kernels_json(report());
  CHECK(error(good, report()).empty());
  KernelReport other = report();
  other.device.tf32 = true;
  CHECK(contains(error(good, other), "b.json: tf32: expected true as in this run, got false"));
  other.device.tf32 = false;
  other.device.threads = 1;
  CHECK(contains(error(good, other), "b.json: threads: expected 1 as in this run, got 2"));
  other = report();
  other.device.name = "B";
  CHECK(contains(error(good, other), "b.json: device: expected \"B\" as in this run"));
  other = report();
  other.extents.dtype = DType::kBF16;
  CHECK_THROWS_AS(check_baseline(folder.write("b.json", good), other), Error);
  CHECK(contains(error(good, other), "b.json: dtype: expected \"bf16\""));
  other = report();
  other.bench.kernels.clear();
  CHECK(contains(error(good, other), "b.json: kernels: expected one that is measured now"));
  CHECK(contains(error("{}", report()), "b.json: backend: expected what bench kernels --json"));
  CHECK(contains(error("[1]", report()), "b.json: backend"));
  CHECK(contains(error("{", report()), "b.json:1"));
  Json broken = parse_json(good, "report");
  broken["kernels"][1]["us_least"] = "fast";
  CHECK(contains(error(broken.dump(), report()), "kernels[1]: us_least: expected a positive"));
  CHECK(
      contains(test::error_of([&] { compare_with_baseline(folder / "none", report()); }), "none"));
}

TEST_CASE("device: a CPU's name and its fastest core") {
  const cpu::CpuBackend backend;
  const DeviceReport device = report_device(backend, {.cpu = {.threads = 3}});
  CHECK(device.backend == "cpu");
  CHECK(device.threads == 3);
  CHECK(device.cache_bytes > 0);
}

TEST_CASE("device: each of the last caches counts once") {
  const test::TempFolder folder;
  const auto cache = [&](int cpu, int index, int level, const char* size, const char* shared) {
    const auto at = folder / fmt::format("cpu{}/cache/index{}", cpu, index);
    std::filesystem::create_directories(at);
    std::ofstream(at / "level") << level << "\n";
    std::ofstream(at / "size") << size << "\n";
    std::ofstream(at / "shared_cpu_list") << shared << "\n";
  };
  CHECK(last_caches(folder.path()) == 0);
  for (const int cpu : {0, 1, 2}) {
    cache(cpu, 0, 1, "48K", "0");
    cache(cpu, 1, 3, "32768K", cpu < 2 ? "0-1" : "2-3");
    cache(cpu, 2, 2, "1024K", "0");
  }
  CHECK(last_caches(folder.path()) == size_t{64} << 20);
  cache(3, 1, 3, "8M", "9");
  CHECK(last_caches(folder.path()) == size_t{72} << 20);
}

}  // namespace fsdp::tools
