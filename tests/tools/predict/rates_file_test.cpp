// The file of rates: what is written is read again; each kind of mistake has its line.
#include "tools/predict/rates_file.h"

#include <fstream>

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "tests/support/temp_folder.h"
#include "tools/predict/nominal_gpus.h"

namespace fsdp::tools {
namespace {

constexpr const char* kRow =
    R"({"kernel": "matmul", "shape": "2 x 3, 3 x 4; b transposed", "dtype": "bf16", "us": 1.5})";

Json good() {
  Json json = parse_json(R"({
    "machine": "mine", "flops_per_s": {"f32": 1e10, "bf16": 4e10}, "memory_bytes_per_s": 2e9,
    "kernel_us": 0, "issue_us": 0.5, "ranks_per_node": 4,
    "inside_node": {"latency_us": 10, "bytes_per_s": 1e9},
    "between_nodes": {"latency_us": 0, "bytes_per_s": 1e8},
    "host_copy": {"latency_us": 1, "bytes_per_s": 1e9},
    "disk_read": {"latency_us": 0, "bytes_per_s": 3e9},
    "disk_write": {"latency_us": 0, "bytes_per_s": 2e9}, "calls": []})",
                         "good");
  json["calls"].push_back(Json::parse(kRow));
  return json;
}

// What the file with this change is refused with, behind the name of the file.
std::string refused(const std::function<void(Json&)>& change) {
  const test::TempFolder folder;
  const std::string file = (folder.path() / "rates.json").string();
  Json json = good();
  change(json);
  write_json_file(file, json);
  const std::string error = test::error_of([&] { read_rates(file); });
  return error.starts_with(file) ? error.substr(file.size()) : "elsewhere: " + error;
}

TEST_CASE("rates file: all that is written is read again") {
  const test::TempFolder folder;
  Rates rates = nominal_rates();
  rates.kernels[{"matmul", "2 x 3, 3 x 4", DType::kF32}] = 0.1 + 0.2;
  rates.kernels[{"cast", "7, 7 bf16", DType::kF32}] = 3;
  write_rates(folder.path() / "rates.json", rates);
  CHECK((read_rates(folder.path() / "rates.json") == rates));
  write_json_file(folder.path() / "good.json", good());
  const Rates read = read_rates(folder.path() / "good.json");
  CHECK(read.machine == "mine");
  CHECK(read.flops_per_s.at(DType::kBF16) == 4e10);
  CHECK(read.ranks_per_node == 4);
  CHECK(read.disk_read.bytes_per_s == 3e9);
  CHECK(read.disk_write.bytes_per_s == 2e9);
  CHECK(read.kernels.at({"matmul", "2 x 3, 3 x 4; b transposed", DType::kBF16}) == 1.5);
  Json without = good();
  without.erase("calls");
  write_json_file(folder.path() / "good.json", without);
  CHECK(read_rates(folder.path() / "good.json").kernels.empty());
}

TEST_CASE("rates file: mistakes") {
  CHECK(refused([](Json& j) { j["speed"] = 3; }) ==
        ": unknown key \"speed\"; known: machine, flops_per_s, memory_bytes_per_s, kernel_us, "
        "issue_us, ranks_per_node, inside_node, between_nodes, host_copy, "
        "disk_read, disk_write, calls");
  CHECK(refused([](Json& j) { j.erase("kernel_us"); }) ==
        ": expected a key \"kernel_us\", got none");
  CHECK(refused([](Json& j) { j["machine"] = 3; }) == ": machine: expected a text, got 3");
  CHECK(refused([](Json& j) { j["memory_bytes_per_s"] = 0; }) ==
        ": memory_bytes_per_s: expected a number above 0, got 0");
  CHECK(refused([](Json& j) { j["kernel_us"] = -1; }) ==
        ": kernel_us: expected a number from 0, got -1");
  CHECK(refused([](Json& j) { j["issue_us"] = "5"; }) ==
        ": issue_us: expected a number from 0, got \"5\"");
  CHECK(refused([](Json& j) { j["ranks_per_node"] = 2.5; }) ==
        ": ranks_per_node: expected a whole number up to 1048576, got 2.5");
  CHECK(refused([](Json& j) { j["inside_node"] = 5; }) ==
        ": inside_node: expected an object, got 5");
  CHECK(refused([](Json& j) { j["inside_node"]["latency_ms"] = 5; }) ==
        ": inside_node: unknown key \"latency_ms\"; known: latency_us, bytes_per_s");
  CHECK(refused([](Json& j) { j["flops_per_s"]["int8"] = 5; }) ==
        ": flops_per_s: expected one of f32, bf16, f16, f64, i32, i64, got \"int8\"");
  CHECK(refused([](Json& j) { j["flops_per_s"].erase("f32"); }) ==
        ": flops_per_s: expected a key \"f32\" at least, got {\"bf16\":40000000000.0}");
  CHECK(refused([](Json& j) { j["calls"] = Json::object(); }) ==
        ": calls: expected an array, got {}");
}

TEST_CASE("rates file: mistakes in rows") {
  CHECK(refused([](Json& j) { j["calls"].push_back(Json::parse(kRow)); }) ==
        ": calls[1]: expected every call once, got \"matmul\" of 2 x 3, 3 x 4; b transposed again");
  const auto row = [](std::string_view key, const Json& value) {
    return refused([&](Json& j) { j["calls"].back()[key] = value; });
  };
  CHECK(row("us", -2) == ": calls[0]: us: expected a number from 0, got -2");
  CHECK(row("dtype", "half") ==
        ": calls[0]: dtype: expected one of f32, bf16, f16, f64, i32, i64, got \"half\"");
  CHECK(row("ms", 2) == ": calls[0]: unknown key \"ms\"; known: kernel, shape, dtype, us");
  CHECK(refused([](Json& j) { j["calls"].back().erase("shape"); }) ==
        ": calls[0]: expected a key \"shape\", got none");
  CHECK(refused([](Json& j) { j["calls"].back() = 3; }) == ": calls[0]: expected an object, got 3");
}

TEST_CASE("rates file: whose rates a run goes by") {
  const test::TempFolder folder;
  Rates mine = nominal_rates();
  mine.machine = "mine";
  write_rates(folder.path() / "rates.json", mine);
  CHECK(call_rates("", nullptr)->rates() == nominal_rates());
  CHECK(call_rates((folder.path() / "rates.json").string(), nullptr)->rates() == mine);
}

TEST_CASE("rates file: no file, no JSON") {
  const test::TempFolder folder;
  CHECK_THROWS_AS(read_rates(folder.path() / "none.json"), Error);
  std::ofstream(folder.path() / "broken.json") << "{\"machine\": \"m\",\n oops}";
  CHECK(test::contains(test::error_of([&] { read_rates(folder.path() / "broken.json"); }),
                       "broken.json:2: malformed JSON"));
}

}  // namespace
}  // namespace fsdp::tools
