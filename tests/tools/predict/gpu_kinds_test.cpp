// GPUs by their other names, and rates by a data sheet's shares.
#include "tools/predict/gpu_kinds.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tools/predict/machines.h"

namespace fsdp::tools {
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
