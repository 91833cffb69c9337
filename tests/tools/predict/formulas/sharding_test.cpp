// Published values of formulas that start from a number of parameters, to the printed digit.
// Requirements: S2.6.
#include <cmath>

#include <doctest/doctest.h>

#include "tests/tools/predict/formulas/published.h"

namespace fsdp::test {
namespace {

TEST_CASE("formula seed002: the guide's numbers, and where its units are wrong") {
  const std::vector<std::string> all = {"states", "with_activations", "with_10_percent",
                                        "with_20_percent"};
  CHECK(printed("seed002", {}, {"states"}, kGiB, 4) == "7.4506");
  CHECK(printed("seed002", {}, all, kGiB, 2) == "7.45 8.45 9.30 10.14");  // the guide: 10.2
  CHECK(printed("seed002", {"factor=6"}, {"states"}, kGiB, 3) == "5.588");
  CHECK(printed("seed002", {}, {"parameters"}, kGB, 2) == "2.00");  // the guide: 2.00 GiB
  CHECK(printed("seed002", {}, {"parameters"}, kGiB, 3) == "1.863");
  // With the true number of parameters of Pythia-1B.
  CHECK(printed("seed002", {"psi=1011781632"}, {"states"}, kGiB, 3) == "7.538");
  CHECK(printed("seed002", {"psi=1011781632", "factor=6"}, {"states"}, kGiB, 3) == "5.654");
}

// As the paper prints them: large values cut off, small ones rounded, halves up.
std::string as_in_the_paper(double gb) {
  if (gb >= 100) return fmt::format("{:.0f}", std::floor(gb));
  if (gb >= 2) return fmt::format("{:g}", std::floor(gb * 10 + 0.5) / 10);
  return fmt::format("{:.2f}", gb);
}

std::string row_of_zero(const std::string& psi, int N, bool first_too) {
  const tools::FormulaResult r =
      tools::evaluate_formula("zero", {"psi=" + psi, "N=" + std::to_string(N)});
  std::string out = first_too ? as_in_the_paper(r.bytes_of("baseline") / kGB) + " " : "";
  return out + as_in_the_paper(r.bytes_of("stage1") / kGB) + " " +
         as_in_the_paper(r.bytes_of("stage2") / kGB) + " " +
         as_in_the_paper(r.bytes_of("stage3") / kGB);
}

TEST_CASE("formula zero: every value of the paper's table") {
  CHECK(row_of_zero("7.5e9", 1, true) == "120 120 120 120");
  CHECK(row_of_zero("7.5e9", 4, false) == "52.5 41.3 30");
  CHECK(row_of_zero("7.5e9", 16, false) == "35.6 21.6 7.5");
  CHECK(row_of_zero("7.5e9", 64, false) == "31.4 16.6 1.88");
  CHECK(row_of_zero("7.5e9", 256, false) == "30.4 15.4 0.47");
  CHECK(row_of_zero("7.5e9", 1024, false) == "30.1 15.1 0.12");
  CHECK(row_of_zero("128e9", 1, false) == "2048 2048 2048");
  CHECK(row_of_zero("128e9", 4, false) == "896 704 512");
  CHECK(row_of_zero("128e9", 16, false) == "608 368 128");
  CHECK(row_of_zero("128e9", 64, false) == "536 284 32");
  CHECK(row_of_zero("128e9", 256, false) == "518 263 8");
  CHECK(row_of_zero("128e9", 1024, false) == "513 257 2");
  CHECK(row_of_zero("1e12", 1, false) == "16000 16000 16000");
  CHECK(row_of_zero("1e12", 4, false) == "7000 5500 4000");
  CHECK(row_of_zero("1e12", 16, false) == "4750 2875 1000");
  CHECK(row_of_zero("1e12", 64, false) == "4187 2218 250");
  CHECK(row_of_zero("1e12", 256, false) == "4046 2054 62.5");
  CHECK(row_of_zero("1e12", 1024, false) == "4011 2013 15.6");
}

// BLOOM-560M on 2, Mistral-7B on 8 and 16, CodeLlama-7B on 2, fairseq's 13B on 8.
TEST_CASE("formula zero: bytes sent of 16-bit elements") {
  const auto sent = [](const std::string& psi, int N) {
    return printed("zero", {"psi=" + psi, "N=" + std::to_string(N)}, {"sent_stage3"}, kGB, 2);
  };
  CHECK(sent("559214592", 2) == "1.68");
  CHECK(sent("7241732096", 8) == "38.02");
  CHECK(sent("7241732096", 16) == "40.73");
  CHECK(sent("6738546688", 2) == "20.22");
  CHECK(sent("13110865920", 8) == "68.83");
  CHECK(printed("zero", {"N=8"}, {"sent_baseline", "sent_stage2"}, kGB, 2) == "26.25 26.25");
}

TEST_CASE("formula fsdp2-bound: CodeLlama-7B on 2 GPUs") {
  const Numbers none;
  // After the optimizer's first step: masters, gradients and two moments of half of the model.
  CHECK(printed("fsdp2-bound", none, {"optimizer"}, kGiB, 2) == "50.21");
  CHECK(printed("fsdp2-bound", none, {"after_init", "forward", "backward"}, kGiB, 2) ==
        "13.31 15.79 28.34");
  CHECK(printed("fsdp2-bound", {"T=8", "U=2", "R=1", "N=4"},
                {"after_init", "after_init_offload", "forward", "forward_no_reshard", "backward",
                 "backward_no_reshard", "optimizer", "after_zero_grad"},
                1, 0) == "16 12 36 48 44 52 32 24");
}

TEST_CASE("formula accelerate: bert-base-cased") {
  CHECK(printed("accelerate", {}, {"f32", "half", "adam_half"}, kMiB, 2) == "413.18 206.59 826.36");
  CHECK(printed("accelerate", {}, {"adam_f32"}, kGiB, 2) == "1.61");
}

TEST_CASE("formulas llamafactory and alpaca: what their READMEs say") {
  CHECK(printed("llamafactory", {"x=70e9"},
                {"full", "full_pure_bf16", "freeze_or_lora", "qlora_8", "qlora_4", "qlora_2"}, kGB,
                1) == "1260.0 560.0 140.0 70.0 35.0 17.5");
  CHECK(printed("alpaca", {}, {"states"}, kGB, 0) == "112");
}

}  // namespace
}  // namespace fsdp::test
