// Machines by name, and that each of their numbers says where it comes from.
// Requirements: S2.6.
#include "tools/predict/machines.h"

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "tests/support/temp_folder.h"
#include "tools/predict/rates_file.h"

namespace fsdp::tools {
namespace {

TEST_CASE("machines: a name, or the names that there are") {
  CHECK(machine_rates("L40").device_gib == doctest::Approx(44.40));
  CHECK(machine_rates("V100-16").device_gib == doctest::Approx(15.77));
  CHECK(machine_rates("cpu").device_gib == 0);
  CHECK(is_machine("H100-EFA"));
  CHECK(!is_machine("A100"));
  CHECK(test::error_of([] { machine_rates("A100"); }) ==
        "machine: expected one of V100-16, V100-32, L40, A100-40, A100-80, DGX-A100, H100, "
        "H100-cublaslt, H100-EFA, H100-500W, H200, B200, cpu, T4, A10, A10G, A40, A6000, "
        "RTX-6000-Ada, L4, L40S, RTX-3090, RTX-4090, RTX-5090, H20, H100-PCIe, H100-NVL, GH200, "
        "GB200, B300, or a size of memory such as 48GiB; got \"A100\"; near: A100-40, A100-80");
  CHECK(machine_named("NVIDIA A100-SXM4-80GB") == "A100-80");
  CHECK(machine_named("my.json") == "my.json");
  CHECK(machine_rates(kUsualMachine).machine == "an A100 80 GB, eight in a machine");
}

TEST_CASE("machines: a size of memory has no times") {
  const Rates rates = machine_rates("48GiB");
  CHECK(rates.memory_only);
  CHECK(rates.device_gib == 48);
  CHECK(rates.context_mib == machine_rates(kUsualMachine).context_mib);
  CHECK(wrong_machine("48GiB").empty());
  CHECK(wrong_machine("1.5TB").empty());
  for (const char* wrong : {"48", "GiB", "-3GiB", ""}) {
    CAPTURE(wrong);
    CHECK(test::contains(wrong_machine(wrong), "or a size of memory such as 48GiB"));
  }
  CHECK(test::error_of([&] { check_has_times(rates); }) ==
        "a GPU of 48GiB: its memory alone is known, and no time: --rates NAME takes the times of a "
        "machine");
  check_has_times(machine_rates("T4"));
}

// Fitted on the rows of llm-foundry, tests/fixtures/planning/README.md.
TEST_CASE("machines: rates of products and of attention in 16 bits") {
  const auto rates = [](const char* name) {
    const Rates all = machine_rates(name);
    return std::pair(all.flops_per_s.at(DType::kBF16), all.attention.flops_per_s.at(DType::kBF16));
  };
  CHECK(rates("A100-40") == std::pair(251.0e12, 98.05e12));
  CHECK(rates("A100-80") == std::pair(257.1e12, 102.5e12));
  CHECK(rates("H100") == std::pair(636.6e12, 178.4e12));
  CHECK(rates("H100-cublaslt") == std::pair(799.1e12, 500e12));
  // What is said once, of another machine.
  CHECK(machine_rates("A100-40").product_half == machine_rates("A100-80").product_half);
  CHECK(machine_rates("H100-EFA").attention.keys_half == 490);
  CHECK(machine_rates("H100-EFA").attention.head_half == 20);
}

// Of every number of an object: a source of its key, or of the object's.
void check_sources(const Json& object, const std::string& path,
                   const std::map<std::string, std::string>& sources) {
  for (const auto& [key, value] : object.items()) {
    const std::string here = path.empty() ? key : path + "." + key;
    if (sources.contains(here) || here == "calls" || here == "sources" || value.is_string())
      continue;
    CAPTURE(here);
    CHECK(value.is_object());
    if (value.is_object()) check_sources(value, here, sources);
  }
}

TEST_CASE("machines: every number has its source, and every source a number") {
  const test::TempFolder folder;
  for (const std::string& name : machine_names()) {
    CAPTURE(name);
    const Rates rates = machine_rates(name);
    write_rates(folder / "all.json", rates);
    const Json all = read_json_file(folder / "all.json");
    check_sources(all, "", rates.sources);
    for (const auto& [path, text] : rates.sources) {
      CAPTURE(path);
      CHECK(!text.empty());
      std::string pointer = "/" + path;
      std::replace(pointer.begin(), pointer.end(), '.', '/');
      // A number that is nought is not written.
      CHECK((all.follow(pointer) != nullptr || path == "multiprocessors"));
    }
    CHECK((rates.device_gib > 0) == !rates.note.empty());  // what was never measured says so
  }
}

}  // namespace
}  // namespace fsdp::tools
