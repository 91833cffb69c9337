// DeepSpeed's estimators. Their GB and MB are 2^30 and 2^20 bytes; 1.5 is for buffers of the host.
#include <algorithm>

#include "tools/predict/formulas/formula.h"

namespace fsdp::tools {
namespace {

constexpr double kHostBuffers = 1.5;

std::vector<FormulaSymbol> zero2_symbols() {
  return {{"psi", "parameters", 2851e6}, {"g", "GPUs of a node", 8}, {"nodes", "nodes", 1}};
}

// The parts that code and documentation agree on, around the one that they do not.
std::vector<FormulaLine> zero2_lines(const FormulaNumbers& x, const std::string& text,
                                     double gpu_bytes) {
  const double psi = x("psi"), g = x("g"), N = g * x("nodes");
  return {{"offload_cpu", "max(4 N, 16) psi 1.5, N = g nodes",
           std::max(4 * N, 16.0) * psi * kHostBuffers},
          {"offload_gpu", "2 psi", 2 * psi},
          {"none_cpu", "4 g psi 1.5", 4 * g * psi * kHostBuffers},
          {"none_gpu", text, gpu_bytes}};
}

Formula zero2() {
  return {.name = "deepspeed2",
          .about = "estimate_zero2_model_states_mem_needs as its code has it; the example is t5-3b",
          .symbols = zero2_symbols(),
          .lines = [](const FormulaNumbers& x) {
            const double psi = x("psi"), N = x("g") * x("nodes");
            return zero2_lines(x, "2 psi + 18 psi / N", 2 * psi + 18 * psi / N);
          }};
}

Formula zero2_of_documentation() {
  return {.name = "deepspeed2-doc",
          .about = "the same as its documentation prints it, from an older formula",
          .symbols = zero2_symbols(),
          .lines = [](const FormulaNumbers& x) {
            const double psi = x("psi"), N = x("g") * x("nodes");
            return zero2_lines(x, "4 psi + 16 psi / N", 4 * psi + 16 * psi / N);
          }};
}

// "init": with zero.Init every rank makes its part only.
Formula zero3() {
  return {.name = "deepspeed3",
          .about = "estimate_zero3_model_states_mem_needs; the example is t5-3b",
          .symbols = {{"psi", "parameters", 2851e6},
                      {"Lmax", "parameters of the module with most of its own", 32e6},
                      {"g", "GPUs of a node", 8},
                      {"nodes", "nodes", 1}},
          .lines = [](const FormulaNumbers& x) -> std::vector<FormulaLine> {
            const double psi = x("psi"), L = x("Lmax"), g = x("g"), nodes = x("nodes");
            const double N = g * nodes, c = kHostBuffers;
            return {
                {"both_cpu_init", "18 psi / nodes 1.5", 18 * psi / nodes * c},
                {"both_cpu", "max(4 g, 18 / nodes) psi 1.5", std::max(4 * g, 18 / nodes) * psi * c},
                {"both_gpu", "4 Lmax", 4 * L},
                {"optimizer_cpu_init", "16 psi / nodes 1.5", 16 * psi / nodes * c},
                {"optimizer_cpu", "max(4 g, 16 / nodes) psi 1.5",
                 std::max(4 * g, 16 / nodes) * psi * c},
                {"optimizer_gpu", "4 Lmax + 2 psi / N, N = g nodes", 4 * L + 2 * psi / N},
                {"none_cpu_init", "4 g Lmax 1.5", 4 * g * L * c},
                {"none_cpu", "4 g psi 1.5", 4 * g * psi * c},
                {"none_gpu", "4 Lmax + 18 psi / N", 4 * L + 18 * psi / N},
            };
          }};
}

}  // namespace

std::vector<Formula> deepspeed_formulas() { return {zero2(), zero2_of_documentation(), zero3()}; }

}  // namespace fsdp::tools
