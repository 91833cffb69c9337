// Published values of formulas that start from the shape of a transformer, to the printed digit.
#include <doctest/doctest.h>

#include "tests/tools/predict/formulas/published.h"

namespace fsdp::test {
namespace {

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
