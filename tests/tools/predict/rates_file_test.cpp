// The file of rates: what is written is read again; each kind of mistake has its line.
#include "tools/predict/rates_file.h"

#include <fstream>

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "tests/support/temp_folder.h"
#include "tools/predict/machines.h"

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
  Rates rates = machine_rates("H100-500W");
  rates.measured_bus = machine_rates("H100-EFA").measured_bus;
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
  CHECK(
      refused([](Json& j) { j["speed"] = 3; }) ==
      ": unknown key \"speed\"; known: machine, note, flops_per_s, peak_flops_per_s, product_half, "
      "multiprocessors, "
      "attention, memory_bytes_per_s, kernel_us, ramp_us, issue_us, power, device_gib, "
      "context_mib, interference, ranks_per_node, inside_node, between_nodes, measured_bus, "
      "host_copy, disk_read, disk_write, host_memory_bytes_per_s, calls, sources");
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
        ": inside_node: unknown key \"latency_ms\"; known: latency_us, bytes_per_s, hop_us");
  CHECK(refused([](Json& j) { j["flops_per_s"]["int8"] = 5; }) ==
        ": flops_per_s: expected one of f32, bf16, f16, f64, i32, i64, got \"int8\"");
  CHECK(refused([](Json& j) { j["flops_per_s"].erase("f32"); }) ==
        ": flops_per_s: expected a key \"f32\" at least, got {\"bf16\":40000000000.0}");
  CHECK(refused([](Json& j) { j["calls"] = Json::object(); }) ==
        ": calls: expected an array, got {}");
}

// What a file says that knows none of the later keys: estimates without shapes, collectives without
// hops, nothing that is slower beside a collective.
TEST_CASE("rates file: what a file leaves out has no effect") {
  const test::TempFolder folder;
  write_json_file(folder / "good.json", good());
  const Rates rates = read_rates(folder / "good.json");
  CHECK(rates.product_half == ProductHalves{});
  CHECK(rates.attention == AttentionRate{});
  CHECK(rates.power == PowerLimit{});
  CHECK(rates.multiprocessors == 0);
  CHECK(rates.ramp_us == 0);
  CHECK(rates.interference == 0);
  CHECK(rates.inside_node.hop_us == 0);
  CHECK(rates.measured_bus.empty());
  write_rates(folder / "again.json", rates);
  Json again = read_json_file(folder / "again.json");
  again.erase("host_memory_bytes_per_s");
  for (const auto& [key, value] : again.items()) CHECK(good().contains(key));
}

TEST_CASE("rates file: like a machine, but for what is said") {
  const test::TempFolder folder;
  const auto read = [&](std::string_view text) {
    write_json_file(folder / "mine.json", parse_json(text, "mine"));
    return read_rates(folder / "mine.json");
  };
  const Rates h100 = machine_rates("H100");
  CHECK(read(R"({"like": "H100"})") == h100);
  const Rates mine = read(R"({"like": "H100", "machine": "ours", "inside_node": {"hop_us": 7},
    "memory_bytes_per_s": 2e12, "issue_us": 9, "sources": {"issue_us": "a guess"}})");
  CHECK(mine.machine == "ours");
  CHECK(mine.inside_node.hop_us == 7);
  CHECK(mine.inside_node.bytes_per_s == h100.inside_node.bytes_per_s);
  CHECK(mine.memory_bytes_per_s == 2e12);
  CHECK(mine.flops_per_s == h100.flops_per_s);
  // The source of a number goes with it.
  CHECK(!mine.sources.contains("memory_bytes_per_s"));
  CHECK(!mine.sources.contains("inside_node.hop_us"));
  CHECK(mine.sources.at("issue_us") == "a guess");
  CHECK(mine.sources.at("flops_per_s.bf16") == h100.sources.at("flops_per_s.bf16"));
  CHECK(test::contains(test::error_of([&] { read(R"({"like": "H10"})"); }),
                       "mine.json: like: expected one of V100-16, "));
  CHECK(test::contains(test::error_of([&] { read(R"({"like": "H100", "sped": 3})"); }),
                       "mine.json: unknown key \"sped\"; known: "));
}

TEST_CASE("rates file: mistakes in what shapes and groups take") {
  const auto with = [](std::string_view key, std::string_view value) {
    return refused([&](Json& j) { j[key] = Json::parse(value); });
  };
  CHECK(with("product_half", R"({"m": 1, "n": 2})") ==
        ": product_half: expected a key \"k\", got none");
  CHECK(with("multiprocessors", "1.5") ==
        ": multiprocessors: expected a whole number up to 1048576, got 1.5");
  CHECK(with("attention", R"({"flops_per_s": {"int8": 1}})") ==
        ": attention: flops_per_s: expected one of f32, bf16, f16, f64, i32, i64, got \"int8\"");
  CHECK(with("attention", R"({"flops_per_s": {"bf16": 1}, "head_half": -1})") ==
        ": attention: head_half: expected a number from 0, got -1");
  CHECK(with("power", R"({"limit_watts": 800, "design_watts": 700})") ==
        ": power: expected a limit_watts up to design_watts, got 800 and 700");
  CHECK(with("interference", "1") == ": interference: expected a share below 1, got 1");
  CHECK(with("measured_bus", R"({"gather": []})") ==
        ": measured_bus: expected one of all_gather, reduce_scatter, all_reduce, broadcast, got "
        "\"gather\"");
  CHECK(with("measured_bus", R"({"all_gather": []})") ==
        ": measured_bus: all_gather: expected an array of rows, got []");
  CHECK(with("measured_bus", R"({"all_gather": [{"ranks": 8, "bytes_per_s": 1},
                                               {"ranks": 8, "bytes_per_s": 2}]})") ==
        ": measured_bus: all_gather[1]: expected more ranks than 8 in the row before, got 8");
  CHECK(with("sources", R"({"speed.f32": "a guess"})") ==
        ": sources: expected keys of this file, got \"speed.f32\"");
  CHECK(with("sources", R"({"issue_us": 3})") == ": sources: issue_us: expected a text, got 3");
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
  Rates mine = machine_rates(kUsualMachine);
  mine.machine = "mine";
  write_rates(folder.path() / "rates.json", mine);
  CHECK(call_rates({})->rates() == machine_rates(kUsualMachine));
  CHECK(call_rates({.rates = (folder.path() / "rates.json").string()})->rates() == mine);
}

TEST_CASE("rates file: no file, no JSON") {
  const test::TempFolder folder;
  CHECK(test::contains(test::error_of([&] { read_rates(folder.path() / "none.json"); }),
                       "none.json: no such file exists, and no machine has this name; machines: "
                       "V100-16, "));
  std::ofstream(folder.path() / "broken.json") << "{\"machine\": \"m\",\n oops}";
  CHECK(test::contains(test::error_of([&] { read_rates(folder.path() / "broken.json"); }),
                       "broken.json:2: malformed JSON"));
}

}  // namespace
}  // namespace fsdp::tools
