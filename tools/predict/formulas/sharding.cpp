// What sharding divides: formulas that start from a number of parameters.
#include <algorithm>

#include "tools/predict/formulas/formula.h"

namespace fsdp::tools {
namespace {

// "1.0B x 2 = 2.00 GiB" of the guide is 2.00 GB; its 10.2 is 10.14.
Formula seed002() {
  return {.name = "seed002",
          .about =
              "a guide to fine-tuning with FSDP: everything in 16 bits, moments and masters "
              "in 32",
          .symbols = {{"psi", "parameters", 1e9},
                      {"factor", "of 2 bytes: 6 with gradients and moments, 8 with masters", 8},
                      {"N", "GPUs", 2},
                      {"A", "activations of a GPU, bytes", 1073741824}},
          .lines = [](const FormulaNumbers& x) -> std::vector<FormulaLine> {
            const double states = x("psi") * 2 * x("factor") / x("N");
            const double all = states + x("A");
            return {{"parameters", "2 psi", 2 * x("psi")},
                    {"states", "2 psi factor / N", states},
                    {"with_activations", "states + A", all},
                    {"with_10_percent", "1.1 (states + A)", 1.1 * all},
                    {"with_20_percent", "1.2 (states + A)", 1.2 * all}};
          }};
}

Formula zero() {
  return {.name = "zero",
          .about = "ZeRO (Rajbhandari et al., 2020, arXiv 1910.02054): model states of a GPU",
          .symbols = {{"psi", "parameters", 7.5e9},
                      {"K", "bytes of optimizer state a parameter: Adam in mixed precision 12", 12},
                      {"N", "GPUs", 64}},
          .lines = [](const FormulaNumbers& x) -> std::vector<FormulaLine> {
            const double psi = x("psi"), K = x("K"), N = x("N");
            const double sent = 2 * psi * (N - 1) / N;  // of 2 bytes
            return {{"baseline", "(2 + 2 + K) psi", (4 + K) * psi},
                    {"stage1", "4 psi + K psi / N", 4 * psi + K * psi / N},
                    {"stage2", "2 psi + (2 + K) psi / N", 2 * psi + (2 + K) * psi / N},
                    {"stage3", "(2 + 2 + K) psi / N", (4 + K) * psi / N},
                    {"sent_baseline", "2 psi (N - 1) / N elements of 2 bytes", 2 * sent},
                    {"sent_stage2", "2 psi (N - 1) / N elements of 2 bytes", 2 * sent},
                    {"sent_stage3", "3 psi (N - 1) / N elements of 2 bytes", 3 * sent}};
          }};
}

Formula fsdp2_bound() {
  return {.name = "fsdp2-bound",
          .about =
              "what PyTorch's test_fully_shard_memory.py allows FSDP2 to take, f32 with Adam; "
              "without the megabytes that it adds for the rest of the process",
          .symbols = {{"T", "parameters", 6738546688},
                      {"U", "parameters of the largest unit", 202383360},
                      {"R", "parameters of the root unit", 262279168},
                      {"N", "GPUs", 2}},
          .lines = [](const FormulaNumbers& x) -> std::vector<FormulaLine> {
            const double T = x("T"), U = x("U"), R = x("R"), S = T / x("N");
            return {{"after_init", "4 (S + U), S = T / N", 4 * (S + U)},
                    {"after_init_offload", "4 (1.5 U)", 4 * 1.5 * U},
                    {"forward", "4 (S + 3 U + R)", 4 * (S + 3 * U + R)},
                    {"forward_no_reshard", "4 (S + T + U)", 4 * (S + T + U)},
                    {"backward", "4 (2 S + 3 U + R)", 4 * (2 * S + 3 * U + R)},
                    {"backward_no_reshard", "4 (S + T + 1.5 U)", 4 * (S + T + 1.5 * U)},
                    {"optimizer", "4 (4 S)", 16 * S},
                    {"after_zero_grad", "4 (3 S)", 12 * S}};
          }};
}

// Its MB and GB are 2^20 and 2^30 bytes.
Formula accelerate() {
  return {.name = "accelerate",
          .about = "Hugging Face's accelerate estimate-memory; the example is bert-base-cased",
          .symbols = {{"psi", "elements of parameters and buffers", 108312320}},
          .lines = [](const FormulaNumbers& x) -> std::vector<FormulaLine> {
            const double size = 4 * x("psi");
            return {{"f32", "4 psi", size},
                    {"half", "4 psi / 2", size / 2},
                    {"int8", "4 psi / 4", size / 4},
                    {"int4", "4 psi / 8", size / 8},
                    {"adam_f32", "4 (4 psi): model 1, gradients 1, moments 2, at the step 4",
                     std::max({size, size, 2 * size, 4 * size})},
                    {"adam_half", "2 (4 psi): model 1, gradients 1.5, moments 2",
                     std::max({size, 1.5 * size, 2 * size})},
                    {"inference_f32", "1.2 (4 psi)", 1.2 * size}};
          }};
}

// Its table rounds: for 7B it has 120, 60, 16, 10, 6 and 4 GB.
Formula llamafactory() {
  return {.name = "llamafactory",
          .about = "LLaMA-Factory's README, hardware requirement: of all GPUs together, estimated",
          .symbols = {{"x", "parameters", 7e9}},
          .lines = [](const FormulaNumbers& n) -> std::vector<FormulaLine> {
            const double x = n("x");
            return {{"full", "18 x: bf16 or fp16 beside 32 bits", 18 * x},
                    {"full_pure_bf16", "8 x", 8 * x},
                    {"freeze_or_lora", "2 x: frozen weights in 16 bits", 2 * x},
                    {"qlora_8", "x", x},
                    {"qlora_4", "x / 2", x / 2},
                    {"qlora_2", "x / 4", x / 4}};
          }};
}

Formula alpaca() {
  return {
      .name = "alpaca",
      .about = "Stanford Alpaca's README: 7 x 4 x 4 = 112 GB for a 7B model, fine-tuned naively",
      .symbols = {{"psi", "parameters", 7e9},
                  {"bytes", "of a number", 4},
                  {"copies", "weights, gradients and two moments", 4}},
      .lines = [](const FormulaNumbers& x) -> std::vector<FormulaLine> {
        const double all = x("psi") * x("bytes") * x("copies");
        return {{"states", "psi x bytes x copies", all}};
      }};
}

}  // namespace

std::vector<Formula> sharding_formulas() {
  return {seed002(), zero(), fsdp2_bound(), accelerate(), llamafactory(), alpaca()};
}

}  // namespace fsdp::tools
