// Published values of formulas, to the printed digit: what papers, guides and other programs print.
// Requirements: S2.6.
#include <cmath>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tools/predict/formulas/formula.h"

namespace fsdp::test {
namespace {

using Numbers = std::vector<std::string>;

constexpr double kGB = 1e9, kMiB = 1048576, kGiB = 1073741824.0;

// Lines of a formula in a unit, to so many digits behind the point, with blanks between.
std::string printed(const std::string& name, const Numbers& numbers,
                    const std::vector<std::string>& lines, double unit, int digits) {
  const tools::FormulaResult result = tools::evaluate_formula(name, numbers);
  std::string out;
  for (const std::string& line : lines) {
    out += fmt::format("{}{:.{}f}", out.empty() ? "" : " ", result.bytes_of(line) / unit, digits);
  }
  return out;
}

struct Published {
  const char* formula;
  Numbers numbers;
  std::vector<std::string> lines;
  double unit;
  int digits;
  const char* expected;
};

void check(const std::vector<Published>& values) {
  for (const auto& [formula, numbers, lines, unit, digits, expected] : values) {
    CAPTURE(formula);
    CHECK(printed(formula, numbers, lines, unit, digits) == expected);
  }
}

TEST_CASE("formula seed002: the guide's numbers, and where its units are wrong") {
  check({{"seed002", {}, {"states"}, kGiB, 4, "7.4506"},
         {"seed002",
          {},
          {"states", "with_activations", "with_10_percent", "with_20_percent"},
          kGiB,
          2,
          "7.45 8.45 9.30 10.14"},  // the guide: 10.2
         {"seed002", {"factor=6"}, {"states"}, kGiB, 3, "5.588"},
         {"seed002", {}, {"parameters"}, kGB, 2, "2.00"},  // the guide: 2.00 GiB
         {"seed002", {}, {"parameters"}, kGiB, 3, "1.863"},
         // With the true number of parameters of Pythia-1B.
         {"seed002", {"psi=1011781632"}, {"states"}, kGiB, 3, "7.538"},
         {"seed002", {"psi=1011781632", "factor=6"}, {"states"}, kGiB, 3, "5.654"}});
}

// As the paper prints them: large values cut off, small ones rounded, halves up.
std::string as_in_the_paper(double gb) {
  if (gb >= 100) return fmt::format("{:.0f}", std::floor(gb));
  if (gb >= 2) return fmt::format("{:g}", std::floor(gb * 10 + 0.5) / 10);
  return fmt::format("{:.2f}", gb);
}

TEST_CASE("formula zero: every value of the paper's table, stages 1, 2 and 3") {
  struct Model {
    const char *psi, *baseline;
    std::vector<const char*> expected;  // on 1, 4, 16, 64, 256, 1024 GPUs
  };
  const std::vector<Model> models = {
      {"7.5e9",
       "120",
       {"120 120 120", "52.5 41.3 30", "35.6 21.6 7.5", "31.4 16.6 1.88", "30.4 15.4 0.47",
        "30.1 15.1 0.12"}},
      {"128e9",
       "2048",
       {"2048 2048 2048", "896 704 512", "608 368 128", "536 284 32", "518 263 8", "513 257 2"}},
      {"1e12",
       "16000",
       {"16000 16000 16000", "7000 5500 4000", "4750 2875 1000", "4187 2218 250", "4046 2054 62.5",
        "4011 2013 15.6"}}};
  for (const Model& model : models) {
    int gpus = 1;
    for (const char* const expected : model.expected) {
      const tools::FormulaResult r = tools::evaluate_formula(
          "zero", {fmt::format("psi={}", model.psi), fmt::format("N={}", gpus)});
      const auto gb = [&](const char* line) { return as_in_the_paper(r.bytes_of(line) / kGB); };
      CHECK(gb("stage1") + " " + gb("stage2") + " " + gb("stage3") == expected);
      CHECK(gb("baseline") == model.baseline);
      gpus *= 4;
    }
  }
}

// BLOOM-560M on 2, Mistral-7B on 8 and 16, CodeLlama-7B on 2, fairseq's 13B on 8.
TEST_CASE("formula zero: bytes sent of 16-bit elements") {
  const std::vector<std::string> sent = {"sent_stage3"};
  check({{"zero", {"psi=559214592", "N=2"}, sent, kGB, 2, "1.68"},
         {"zero", {"psi=7241732096", "N=8"}, sent, kGB, 2, "38.02"},
         {"zero", {"psi=7241732096", "N=16"}, sent, kGB, 2, "40.73"},
         {"zero", {"psi=6738546688", "N=2"}, sent, kGB, 2, "20.22"},
         {"zero", {"psi=13110865920", "N=8"}, sent, kGB, 2, "68.83"},
         {"zero", {"N=8"}, {"sent_baseline", "sent_stage2"}, kGB, 2, "26.25 26.25"}});
}

TEST_CASE("formulas fsdp2-bound, accelerate, llamafactory and alpaca: what their sources say") {
  // After the optimizer's first step: masters, gradients and two moments of half of the model.
  check({{"fsdp2-bound", {}, {"optimizer"}, kGiB, 2, "50.21"},
         {"fsdp2-bound", {}, {"after_init", "forward", "backward"}, kGiB, 2, "13.31 15.79 28.34"},
         {"fsdp2-bound",
          {"T=8", "U=2", "R=1", "N=4"},
          {"after_init", "after_init_offload", "forward", "forward_no_reshard", "backward",
           "backward_no_reshard", "optimizer", "after_zero_grad"},
          1,
          0,
          "16 12 36 48 44 52 32 24"},
         {"accelerate", {}, {"f32", "half", "adam_half"}, kMiB, 2, "413.18 206.59 826.36"},
         {"accelerate", {}, {"adam_f32"}, kGiB, 2, "1.61"},
         {"llamafactory",
          {"x=70e9"},
          {"full", "full_pure_bf16", "freeze_or_lora", "qlora_8", "qlora_4", "qlora_2"},
          kGB,
          1,
          "1260.0 560.0 140.0 70.0 35.0 17.5"},
         {"alpaca", {}, {"states"}, kGB, 0, "112"}});
}

// "per CPU | per GPU", GiB.
std::string pair(const Numbers& numbers, const std::string& cpu, const std::string& gpu) {
  return printed("deepspeed3", numbers, {cpu}, kGiB, 2) + "|" +
         printed("deepspeed3", numbers, {gpu}, kGiB, 2);
}

TEST_CASE("formula deepspeed3: t5-3b as documented, from rounded sizes and from true ones") {
  CHECK(pair({}, "both_cpu_init", "both_gpu") == "71.69|0.12");
  CHECK(pair({}, "both_cpu", "both_gpu") == "127.45|0.12");
  CHECK(pair({}, "optimizer_cpu_init", "optimizer_gpu") == "63.72|0.78");
  CHECK(pair({}, "optimizer_cpu", "optimizer_gpu") == "127.45|0.78");
  CHECK(pair({}, "none_cpu_init", "none_gpu") == "1.43|6.09");
  CHECK(pair({}, "none_cpu", "none_gpu") == "127.45|6.09");
  // 2,851,598,336 parameters, of which the table of 32,128 tokens has 1024 each.
  const Numbers exact = {"psi=2851598336", "Lmax=32899072"};
  CHECK(pair(exact, "none_cpu_init", "none_gpu") == "1.47|6.10");
  CHECK(pair(exact, "optimizer_cpu_init", "optimizer_gpu") == "63.74|0.79");
}

TEST_CASE("formula deepspeed3: t5-large on 4 GPUs, MiB") {
  const Numbers numbers = {"psi=737.67e6", "Lmax=32.90e6", "g=4"};
  // 125.5 is cut off where it was printed.
  CHECK(printed("deepspeed3", numbers, {"none_gpu", "both_gpu", "optimizer_gpu"}, kMiB, 1) ==
        "3291.2 125.5 477.3");
}

TEST_CASE("formula deepspeed3: models of the guides") {
  struct {
    const char *psi, *largest, *gpus;
    const char* expected;
  } const cases[] = {{"559214592", "256901120", "8", "14.06|0.96 12.50|1.09 11.48|2.13"},
                     {"1011781632", "103022592", "2", "25.44|0.38 22.62|1.33 1.15|8.86"},
                     {"7241732096", "131072000", "8", "182.10|0.49 161.87|2.17 5.86|15.66"},
                     {"6738546688", "131137536", "2", "169.45|0.49 150.62|6.76 1.47|56.97"},
                     {"13110865920", "257392640", "8", "329.68|0.96 293.05|4.01 11.51|28.43"}};
  for (const auto& c : cases) {
    CAPTURE(c.psi);
    const Numbers numbers = {std::string("psi=") + c.psi, std::string("Lmax=") + c.largest,
                             std::string("g=") + c.gpus};
    CHECK(pair(numbers, "both_cpu_init", "both_gpu") + " " +
              pair(numbers, "optimizer_cpu_init", "optimizer_gpu") + " " +
              pair(numbers, "none_cpu_init", "none_gpu") ==
          c.expected);
  }
}

TEST_CASE("formula deepspeed2: code and documentation differ where nothing is offloaded") {
  CHECK(printed("deepspeed2", {}, {"offload_cpu", "offload_gpu"}, kGiB, 2) == "127.45 5.31");
  CHECK(printed("deepspeed2", {}, {"none_cpu", "none_gpu"}, kGiB, 2) == "127.45 11.28");
  CHECK(printed("deepspeed2-doc", {}, {"offload_cpu", "offload_gpu"}, kGiB, 2) == "127.45 5.31");
  CHECK(printed("deepspeed2-doc", {}, {"none_cpu", "none_gpu"}, kGiB, 2) == "127.45 15.93");
}

std::string recompute_modes(const Numbers& numbers, int digits) {
  return printed("activation", numbers, {"none", "selective", "full"}, kGiB, digits);
}

TEST_CASE("formula activation: published models, GiB without recompute, selective, full") {
  CHECK(recompute_modes({}, 1) == "256.5 76.5 4.5");                                 // GPT-3 175B
  CHECK(recompute_modes({"a=128", "h=20480", "L=105"}, 2) == "401.95 139.45 8.20");  // MT-NLG 530B
  CHECK(recompute_modes({"b=8", "a=40", "h=5120", "L=40"}, 2) == "356.25 106.25 6.25");
  CHECK(recompute_modes({"b=16", "s=512", "a=8", "h=2048", "L=16"}, 1) == "11.0 8.5 0.5");
  CHECK(recompute_modes({"s=512", "a=16", "h=1024", "L=24"}, 4) == "0.8672 0.3984 0.0234");
  CHECK(recompute_modes({"s=512", "a=32", "h=4096", "L=32"}, 3) == "3.375 2.125 0.125");
  // Logits of Pythia-1B in f32.
  CHECK(printed("activation", {"b=16", "s=512", "v=50304"}, {"logits"}, kGiB, 3) == "1.535");
}

TEST_CASE("formula activation: parts add up, and precision of 2 bytes is the layer") {
  const auto bytes = [](const std::string& line, const Numbers& numbers = {}) {
    return tools::evaluate_formula("activation", numbers).bytes_of(line);
  };
  CHECK(bytes("attention") + bytes("mlp") + bytes("norms") == bytes("layer"));
  CHECK(96 * bytes("layer") == bytes("none"));
  CHECK(bytes("any_precision") == bytes("none"));
  CHECK(bytes("tensor_parallel", {"t=1"}) == bytes("none"));
  CHECK(bytes("sequence_parallel", {"t=1"}) == bytes("none"));
  CHECK(bytes("selective_tensor_parallel", {"t=1"}) == bytes("selective"));
  CHECK(bytes("selective_sequence_parallel", {"t=4"}) == bytes("selective") / 4);
  // s b h (32 + 4 a s / h) = 2048 * 12288 * (32 + 64)
  CHECK(bytes("no_dropout", {"L=1"}) == 2048.0 * 12288 * 96);
  CHECK(bytes("mlp_swiglu", {"s=2", "b=3", "h=4", "f=5"}) == 3 * 24 + 8 * 30);
  CHECK(bytes("mlp_swiglu_no_dropout", {"s=2", "b=3", "h=4", "f=5"}) == 2 * 24 + 8 * 30);
  CHECK(bytes("head", {"s=2", "b=3", "h=4", "v=5"}) == 4 * 24 + 4 * 30);
}

TEST_CASE("formula cookbook: what its program prints, GiB") {
  const std::vector<std::string> lines = {"activations", "model",         "gradients",
                                          "optimizer",   "communication", "total"};
  const auto row = [&](const Numbers& numbers) {
    return printed("cookbook", numbers, {"parameters"}, kGB, 2) + ": " +
           printed("cookbook", numbers, lines, kGiB, 2);
  };
  const Numbers pythia = {"h=4096", "L=32", "a=32",   "v=51200", "b=8",
                          "N=128",  "tp=2", "zero=1", "pa=1"};
  CHECK(row(pythia) == "6.87: 34.00 6.40 25.60 0.60 0.93 67.53");
  CHECK(row({"h=5120", "L=36", "a=40", "v=51200", "b=8", "N=256", "tp=4", "zero=1", "pa=1"}) ==
        "11.86: 23.91 5.52 44.19 0.52 0.93 75.06");
  CHECK(row({}) == "20.58: 17.53 38.32 76.65 229.95 0.00 362.45");
  CHECK(row({"h=4096", "L=32", "a=32", "s=4096", "ff=3.5", "ckpt=0"}) ==
        "6.34: 97.00 11.81 23.63 70.89 0.00 203.33");
  CHECK(row({"h=2048", "L=16", "a=8", "v=50304", "s=512", "b=16", "ckpt=0", "zero=3", "N=2"}) ==
        "1.01: 11.00 0.94 1.89 5.66 2.79 22.28");
}

// Numbers of its file, run by hand.
TEST_CASE("formula megatron: GPT-3 175B over 8 x 8, and a Llama-8B with everything else, MiB") {
  const std::vector<std::string> lines = {"weights_and_optimizer", "activations"};
  CHECK(printed("megatron", {}, lines, kMiB, 2) == "48007.27 9816.02");
  const Numbers llama = {"h=4096",  "L=32",   "a=32",     "kv=8",         "f=14336",
                         "v=32000", "s=4096", "t=2",      "pp=1",         "gated=1",
                         "rms=1",   "dp=4",   "untied=1", "distributed=1"};
  CHECK(printed("megatron", llama, lines, kMiB, 2) == "31078.14 8482.02");
  Numbers staged = llama;
  staged[8] = "pp=4";
  staged.push_back("m=2");
  CHECK(printed("megatron", staged, {"activations"}, kMiB, 2) == "4112.03");
}

}  // namespace
}  // namespace fsdp::test
