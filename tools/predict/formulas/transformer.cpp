// Formulas that start from the shape of a transformer.
#include <algorithm>

#include "tools/predict/formulas/formula.h"

namespace fsdp::tools {
namespace {

// The paper's numbers are bytes already, of 16-bit activations with 1-byte dropout masks.
std::vector<FormulaLine> layer_parts(const FormulaNumbers& x) {
  const double sbh = x("s") * x("b") * x("h"), s = x("s"), f = x("f");
  const double scores = 5 * x("a") * s * s * x("b");
  return {{"attention", "11 s b h + 5 a s^2 b", 11 * sbh + scores},
          {"mlp", "19 s b h", 19 * sbh},
          {"norms", "4 s b h", 4 * sbh},
          {"mlp_swiglu", "3 s b h + 8 s b f", 3 * sbh + 8 * s * x("b") * f},
          {"mlp_swiglu_no_dropout", "2 s b h + 8 s b f", 2 * sbh + 8 * s * x("b") * f}};
}

Formula activation() {
  return {
      .name = "activation",
      .about = "Korthikanti et al., 2022 (arXiv 2205.05198), table 2; the example is GPT-3 175B",
      .symbols = {{"b", "sequences of a micro-batch", 1},
                  {"s", "tokens of a sequence", 2048},
                  {"h", "hidden size", 12288},
                  {"a", "attention heads", 96},
                  {"L", "layers", 96},
                  {"f", "inner size of a SwiGLU MLP", 49152},
                  {"v", "vocabulary", 51200},
                  {"t", "ranks of tensor parallelism", 8},
                  {"p", "bytes of an element", 2}},
      .lines = [](const FormulaNumbers& x) {
        const double s = x("s"), h = x("h"), t = x("t"), p = x("p"), L = x("L");
        const double sbh = s * x("b") * h, scores = x("a") * s / h;
        std::vector<FormulaLine> out = layer_parts(x);
        const auto model = [&](const char* name, const char* of_layer, double bytes) {
          out.push_back({name, std::string("L ") + of_layer, L * bytes});
        };
        out.push_back({"layer", "s b h (34 + 5 a s / h)", sbh * (34 + 5 * scores)});
        model("none", "s b h (34 + 5 a s / h)", sbh * (34 + 5 * scores));
        model("selective", "34 s b h", 34 * sbh);
        model("full", "2 s b h", 2 * sbh);
        model("tensor_parallel", "s b h (10 + 24 / t + 5 a s / (h t))",
              sbh * (10 + 24 / t + 5 * scores / t));
        model("sequence_parallel", "s b h (34 + 5 a s / h) / t", sbh * (34 + 5 * scores) / t);
        model("selective_tensor_parallel", "s b h (10 + 24 / t)", sbh * (10 + 24 / t));
        model("selective_sequence_parallel", "34 s b h / t", 34 * sbh / t);
        model("no_dropout", "s b h (32 + 4 a s / h)", sbh * (32 + 4 * scores));
        model("any_precision", "s b h (16 p + 2 + (2 p + 1) a s / h)",
              sbh * (16 * p + 2 + (2 * p + 1) * scores));
        out.push_back({"input_dropout", "s b h", sbh});
        out.push_back({"logits", "4 s b v", 4 * s * x("b") * x("v")});
        out.push_back({"head", "4 s b h (1 + v / h)", 4 * sbh * (1 + x("v") / h)});
        return out;
      }};
}

Formula cookbook() {
  return {
      .name = "cookbook",
      .about = "EleutherAI's cookbook, calc_transformer_mem.py; the example is its default, 20B",
      .symbols = {{"h", "hidden size", 6144},
                  {"L", "layers", 44},
                  {"a", "attention heads", 64},
                  {"v", "vocabulary", 51200},
                  {"s", "tokens of a sequence", 2048},
                  {"b", "sequences of a micro-batch", 1},
                  {"ff", "inner size of the MLP by hidden size", 4},
                  {"mlp", "matrices of the MLP", 2},
                  {"kv", "key-value heads by heads", 1},
                  {"N", "GPUs", 1},
                  {"tp", "ranks of tensor parallelism", 1},
                  {"zero", "stage of ZeRO", 0},
                  {"ckpt", "1: checkpoint activations", 1},
                  {"pa", "1: partition activations over tp", 0}},
      .lines = [](const FormulaNumbers& x) -> std::vector<FormulaLine> {
        const double h = x("h"), L = x("L"), s = x("s"), N = x("N"), zero = x("zero");
        const double psi = 2 * x("v") * h + h * s + 8 * h * L + 2 * h +
                           2 * (1 + x("kv")) * L * h * h + x("mlp") * L * h * h * x("ff");
        const double scores = x("ckpt") > 0 ? 0 : 5 * x("a") * s / h;
        const double activations = s * x("b") * h * L * (34 + scores) / (x("pa") > 0 ? x("tp") : 1);
        const double model = 2 * psi / x("tp") / (zero >= 3 ? N : 1);
        const double gradients = 4 * psi / (zero >= 2 ? N : 1);
        const double optimizer = 12 * psi / (zero >= 1 ? N : 1);
        const double sent = (zero >= 1 && N > 1 ? 5e8 * 2 : 0) + (zero >= 3 ? 1e9 * 2 : 0);
        return {
            {"model", "2 psi / tp, and / N from ZeRO 3", model},
            {"activations", "s b h L 34, without ckpt (34 + 5 a s / h), with pa / tp", activations},
            {"gradients", "4 psi, / N from ZeRO 2", gradients},
            {"optimizer", "12 psi, / N from ZeRO 1", optimizer},
            {"communication", "1e9 from ZeRO 1 and several GPUs, and 2e9 from ZeRO 3", sent},
            {"total", "the sum", model + activations + gradients + optimizer + sent},
            {"parameters",
             "psi = 2vh + hs + 8hL + 2h + 2(1 + kv)Lh^2 + mlp L h^2 ff, bytes "
             "of a byte each",
             psi}};
      }};
}

// Parameters of the fullest stage: an embedding, and its part of the layers. Dense layers only.
double megatron_stage(const FormulaNumbers& x) {
  const double h = x("h"), norm = x("rms") > 0 ? 1 : 2;
  const double mlp = x("f") * (x("gated") > 0 ? 1.5 : 1.0);
  const double attention = 2 * h * h * (1 + x("kv") / x("a")) * (x("d") * x("a") / h);
  const double layers = (2 * h * (mlp + norm) + attention) * x("L") + norm * h;
  const double table = h * x("v");
  const double head = x("untied") > 0 && x("pp") == 1 ? table : 0;
  return (layers / x("pp") + table + head) / x("t");
}

double megatron_activations(const FormulaNumbers& x) {
  const double sb = x("s") * x("b"), h = x("h"), pp = x("pp");
  double bytes = sb * h * (18 + 4 * x("f") / h) * x("L") + (8 + h) * sb * pp;
  bytes *= pp > 1 ? std::min(1.0, x("m") / pp) : 1.0;
  if (pp == 1) bytes += sb * h * 4 * (1 + x("v") / h);
  return bytes / x("t");
}

Formula megatron() {
  return {.name = "megatron",
          .about =
              "Megatron-LM, theoretical_memory_usage.py: the first pipeline stage, with "
              "sequence parallelism and selective recompute; the example is GPT-3 175B",
          .symbols = {{"h", "hidden size", 12288},
                      {"L", "layers", 96},
                      {"a", "attention heads", 96},
                      {"kv", "query groups", 96},
                      {"d", "size of a head", 128},
                      {"f", "inner size of the MLP", 49152},
                      {"v", "padded vocabulary", 51200},
                      {"s", "tokens of a sequence", 2048},
                      {"b", "sequences of a micro-batch", 1},
                      {"t", "ranks of tensor parallelism", 8},
                      {"pp", "pipeline stages", 8},
                      {"m", "micro-batches", 8},
                      {"dp", "ranks of data parallelism", 1},
                      {"gated", "1: SwiGLU", 0},
                      {"rms", "1: RMS norm", 0},
                      {"untied", "1: the head is a matrix of its own", 0},
                      {"distributed", "1: the optimizer is sharded over dp", 0}},
          .lines = [](const FormulaNumbers& x) -> std::vector<FormulaLine> {
            const double each = x("distributed") > 0 ? 6 + 12 / x("dp") : 18;
            const double states = megatron_stage(x) * each, activations = megatron_activations(x);
            return {{"weights_and_optimizer", "18 psi, distributed (6 + 12 / dp) psi, of the stage",
                     states},
                    {"activations",
                     "(L s b h (18 + 4 f / h) + (8 + h) s b pp) min(1, m / pp) / t, and the head",
                     activations},
                    {"total", "the sum", states + activations}};
          }};
}

}  // namespace

std::vector<Formula> transformer_formulas() { return {activation(), cookbook(), megatron()}; }

}  // namespace fsdp::tools
