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
namespace {

TEST_CASE("gpu kinds: names as nvidia-smi, Slurm and people write them") {
  const std::pair<const char*, const char*> names[] = {
      {"NVIDIA A100-SXM4-80GB", "A100-80"},
      {"NVIDIA A100 80GB PCIe", "A100-80"},
      {"NVIDIA A100-PCIE-40GB", "A100-40"},
      {"a100_80gb", "A100-80"},
      {"nvidia_a100-sxm4-40gb", "A100-40"},
      {"gpu:a100_80gb:4", "A100-80"},
      {"A100-40GB", "A100-40"},
      {"Tesla V100-SXM2-16GB", "V100-16"},
      {"Tesla V100-PCIE-32GB", "V100-32"},
      {"v100-32", "V100-32"},
      {"Tesla T4", "T4"},
      {"t4 16GB", "T4"},
      {"NVIDIA A10G", "A10G"},
      {"NVIDIA A10", "A10"},
      {"NVIDIA A40", "A40"},
      {"NVIDIA RTX A6000", "A6000"},
      {"NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"},
      {"NVIDIA L4", "L4"},
      {"nvidia_l40s", "L40S"},
      {"L40S-48GB", "L40S"},
      {"NVIDIA GeForce RTX 3090", "RTX-3090"},
      {"RTX 4090", "RTX-4090"},
      {"rtx4090 24gb", "RTX-4090"},
      {"5090", "RTX-5090"},
      {"NVIDIA H100 80GB HBM3", "H100"},
      {"h100_80gb", "H100"},
      {"NVIDIA H100 PCIe", "H100-PCIe"},
      {"NVIDIA H100 NVL", "H100-NVL"},
      {"NVIDIA H20", "H20"},
      {"NVIDIA H200", "H200"},
      {"NVIDIA GH200 480GB", "GH200"},
      {"NVIDIA B200", "B200"},
      {"NVIDIA B300 SXM6 AC", "B300"},
      {"NVIDIA GB200", "GB200"},
      {"CPU", "cpu"},
      // Several kinds, another memory, or no kind.
      {"A100", ""},
      {"H100 96GB", ""},
      {"RTX 6000", ""},
      {"NVIDIA A100-SXM4-40GB MIG 1g.5gb", ""},
      {"48GiB", ""},
      {"NVIDIA", ""},
      {"", ""}};
  const std::vector<std::string> machines = machine_names();
  for (const auto& [given, name] : names) {
    CAPTURE(given);
    CHECK(gpu_named(given, machines) == name);
  }
}

TEST_CASE("gpu kinds: the nearest of an unknown name") {
  const std::vector<std::string> machines = machine_names();
  CHECK(nearest_gpus("NVIDIA A100", machines) == "A100-40, A100-80");
  CHECK(nearest_gpus("RTX 4080", machines) == "RTX-4090");
  CHECK(nearest_gpus("MI300X", machines).empty());
}

TEST_CASE("gpu kinds: rates are the other GPU's, by the data sheet") {
  const Rates ada = machine_rates("RTX 4090"), like = machine_rates("L40");
  CHECK(ada.device_gib == doctest::Approx(23.51));
  CHECK(ada.peak_flops_per_s.at(DType::kBF16) == doctest::Approx(165.2e12));
  const double share = like.flops_per_s.at(DType::kBF16) / like.peak_flops_per_s.at(DType::kBF16);
  CHECK(ada.flops_per_s.at(DType::kBF16) == doctest::Approx(share * 165.2e12));
  CHECK(ada.attention.flops_per_s.at(DType::kF16) ==
        doctest::Approx(like.attention.flops_per_s.at(DType::kF16) * 165.2 / 181.05));
  CHECK(ada.attention.head_half == like.attention.head_half);
  CHECK(ada.memory_bytes_per_s == doctest::Approx(0.8 * 1008e9));
  CHECK(ada.machine == "8 RTX-4090s in a machine");
  CHECK(test::contains(ada.sources.at("flops_per_s"), "not validated"));
  CHECK(ada.note == like.note);
  CHECK(machine_rates("H100 PCIe").inside_node == like.inside_node);
  // A data sheet that has no bf16.
  CHECK(!machine_rates("T4").peak_flops_per_s.contains(DType::kBF16));
  CHECK(machine_rates("GH200").ranks_per_node == 1);
  CHECK(!gpu_rates_file("H100"));  // it has a file
}

}  // namespace
}  // namespace fsdp::tools
