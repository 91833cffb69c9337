// The table of kernels: it has every kernel of the contract, its bytes are those of the formulas in
// the literature, and every line runs.
#include "tools/bench/kernel_case.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <doctest/doctest.h>

#include "core/kernel_args.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

// Notes which kernels are called.
class Noting final : public cpu::CpuBackend {
 public:
  void run(Stream&, Kernel kernel) override { kinds.insert(kernel.kind()); }
  std::set<size_t> kinds;
};

int64_t bytes_of(const std::vector<KernelCase>& table, const std::string& name) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const KernelCase& line) { return line.name() == name; });
  REQUIRE_MESSAGE(found != table.end(), name);
  return found->call.cost.bytes;
}

}  // namespace

TEST_CASE("kernel table: every kernel of the contract has a line, and every line a kernel") {
  Noting backend;
  KernelInputs inputs(backend);
  std::set<size_t> kinds;
  std::set<std::string> others;
  for (const KernelCase& line :
       kernel_table(kernel_extents({.shape = "elements=9", .batch = 1, .length = 2}))) {
    KernelInputSet set(inputs);
    const meta::KernelRun run = line.call.prepare(set);
    backend.kinds.clear();
    run(backend, backend.compute_stream());
    if (backend.kinds.empty()) others.insert(line.kernel);
    kinds.merge(backend.kinds);
  }
  CHECK_MESSAGE(kinds.size() == Kernels::kKinds,
                "a kernel is measured by no line: tools/bench/kernel_case.cpp, calls_for_all");
  CHECK(others == std::set<std::string>{"copy", "fill_zero"});  // of the contract's first chapter
}

TEST_CASE(
    "kernel table: lines are told apart by name and sizes, and chosen by a part of the name") {
  const KernelExtents extents = kernel_extents({.model = "llama-7b"});
  std::set<std::pair<std::string, std::string>> names;
  for (const KernelCase& line : kernel_table(extents)) {
    CAPTURE(line.name());
    CHECK(names.emplace(line.name(), line.shape).second);
  }
  const std::vector<KernelCase> norms = kernel_table(extents, "norm_backward");
  CHECK(norms.size() == 4);
  for (const KernelCase& line : norms) CHECK(test::contains(line.name(), "norm_backward"));
  CHECK(kernel_table(extents, "no such kernel").empty());
}

// Bytes per kernel in bf16 with f32 masters, N tokens, C hidden, F inner, P parameters: the
// textbook counts (4NC: read and written once at two bytes).
TEST_CASE("kernel table: bytes are those of the formulas") {
  constexpr int64_t N = 64 * 1024, C = 768, F = 3072, P = 1000;
  const std::vector<KernelCase> table = kernel_table(kernel_extents(
      {.shape = "elements=1000", .batch = 64, .length = 1024, .dtype = DType::kBF16}));
  CHECK(bytes_of(table, "layer_norm_forward") == 4 * N * C);
  CHECK(bytes_of(table, "rms_norm_forward with residual") == 8 * N * C);
  CHECK(bytes_of(table, "layer_norm_backward with dsum") == 8 * N * C);
  CHECK(bytes_of(table, "rope") == 4 * N * C);
  CHECK(bytes_of(table, "activation_forward gelu_tanh") == 4 * N * F);
  CHECK(bytes_of(table, "activation_backward gelu_tanh") == 6 * N * F);
  CHECK(bytes_of(table, "glu_forward") == 6 * N * F);
  CHECK(bytes_of(table, "glu_backward") == 10 * N * F);
  CHECK(bytes_of(table, "sum_rows") == 2 * N * C);
  CHECK(bytes_of(table, "add") == 6 * N * C);
  CHECK(bytes_of(table, "dropout") == 4 * N * C);
  CHECK(bytes_of(table, "adam decoupled, with copy") == 30 * P);
  CHECK(bytes_of(table, "adam with copy") == 30 * P);
  CHECK(bytes_of(table, "adamax with copy") == 30 * P);
  CHECK(bytes_of(table, "adadelta with copy") == 30 * P);
  CHECK(bytes_of(table, "sgd with copy") == 14 * P);
  CHECK(bytes_of(table, "sgd momentum, with copy") == 22 * P);
  CHECK(bytes_of(table, "power_sum") == 4 * P);
  CHECK(bytes_of(table, "cast to 16 bits") == 6 * P);
  CHECK(bytes_of(table, "round_stochastically") == 6 * P);
  CHECK(bytes_of(table, "fill_zero") == 4 * P);
  CHECK(bytes_of(table, "advance_steps") == 0);
}

TEST_CASE("kernel table: products, heads and rows say their sizes as people do") {
  const std::vector<KernelCase> table = kernel_table(kernel_extents({.batch = 4, .length = 64}));
  const auto has = [&](const std::string& name, const std::string& shape) {
    return std::any_of(table.begin(), table.end(), [&](const KernelCase& line) {
      return line.name() == name && line.shape == shape;
    });
  };
  CHECK(has("matmul with bias and gelu", "256 x 3072 x 768"));
  CHECK(has("matmul a b", "256 x 3072 x 768"));
  CHECK(has("matmul a^T b, added", "50257 x 768 x 128"));
  CHECK(has("attention_forward of one query", "4 x 1 of 64, 12 heads of 64"));
  CHECK(has("layer_norm_backward with dsum", "256 x 768"));
  CHECK(has("cross_entropy with gradient", "128 x 50257"));
  CHECK(has("glu_forward", "256 x 3072"));
  for (const char* name : {"rope", "rope inverse", "copy_heads"}) {
    CHECK(has(name, "4 x 64, 12 heads of 64"));
  }
}

// Rotary families have no rotary positions then; the rope that is measured leaves one channel out.
TEST_CASE("kernel table: an odd size of the heads") {
  const KernelExtents extents = kernel_extents(
      {.shape = "head_dim=7,heads=5,kv_heads=5,hidden=35,ffn=60", .batch = 1, .length = 8});
  std::set<std::string> names;
  for (const KernelCase& line : kernel_table(extents)) names.insert(line.name());
  for (const char* name : {"rope", "rope inverse", "rms_norm_backward", "attention_forward bias",
                           "glu_forward", "glu_forward of two tensors"}) {
    CHECK_MESSAGE(names.contains(name), std::string(name));
  }
}

TEST_CASE("kernel table: grouped heads, and lines that no step of the model has") {
  const std::vector<KernelCase> table =
      kernel_table(kernel_extents({.model = test::fixture_path("models/llama_gqa_llama3").string(),
                                   .batch = 2,
                                   .length = 16,
                                   .dtype = DType::kBF16}));
  std::set<std::pair<std::string, std::string>> lines;
  for (const KernelCase& line : table) lines.emplace(line.name(), line.shape);
  using Line = std::pair<std::string, std::string>;
  for (const Line& line :
       {Line("attention_backward", "2 x 16 of 16, 4/2 heads of 16"),
        Line("attention_forward of one query", "2 x 1 of 16, 4/2 heads of 16"),
        Line("rope inverse", "2 x 16, 4 heads of 16"), Line("activation_forward relu", "32 x 40"),
        Line("activation_backward gelu_bloom", "32 x 40"),
        Line("matmul with bias and gelu", "32 x 40 x 32"), Line("cross_entropy", "32 x 67"),
        Line("cross_entropy of bf16 logits", "32 x 67"),
        Line("cross_entropy of bf16 logits with gradient", "32 x 67")}) {
    CHECK_MESSAGE(lines.contains(line), line.first);
  }
}

TEST_CASE("kernel table: every line runs, and again, for packed and separate heads") {
  cpu::CpuBackend backend;
  KernelInputs inputs(backend);
  const char* const small =
      "hidden=12,heads=4,kv_heads=4,head_dim=6,ffn=20,vocabulary=37,elements=2001";
  const char* const grouped =
      "hidden=12,heads=4,kv_heads=2,head_dim=6,ffn=20,vocabulary=37,elements=2001";
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    for (const auto& [model, shape] :
         {std::pair("gpt2-124m", small), std::pair("bloom-560m", small),
          std::pair("llama-7b", grouped)}) {
      const KernelExtents extents =
          kernel_extents({.model = model, .shape = shape, .batch = 2, .length = 5, .dtype = dtype});
      for (const KernelCase& line : kernel_table(extents)) {
        CAPTURE(line.name());
        // oneDNN takes its time over the code of every new shape.
        if (line.kernel == "matmul" && (dtype != DType::kF32 || shape == grouped)) continue;
        KernelInputSet set(inputs);
        const meta::KernelRun run = line.call.prepare(set);
        for (int i = 0; i < 2; ++i) run(backend, backend.compute_stream());
        CHECK_NOTHROW(backend.synchronize(backend.compute_stream()));
      }
    }
  }
}

TEST_CASE("kernel inputs: numbers that look normal, whole and cut blocks, indices in range") {
  cpu::CpuBackend backend;
  KernelInputs inputs(backend);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const std::vector<double> values = inputs.normal(Shape{(1 << 20) + 100}, dtype).to_doubles();
    double sum = 0, squares = 0;
    for (const double v : values) sum += v, squares += v * v;
    const auto n = static_cast<double>(values.size());
    CHECK(std::abs(sum / n) < 0.01);
    CHECK(squares / n == doctest::Approx(1).epsilon(0.01));
    CHECK(values[(1 << 20) + 99] == values[99]);
  }
  const std::vector<int32_t> indices = inputs.indices(Shape{1000}, 7).to_host<int32_t>();
  CHECK(*std::min_element(indices.begin(), indices.end()) == 0);
  CHECK(*std::max_element(indices.begin(), indices.end()) == 6);
}

TEST_CASE("kernel extents: a preset, a folder, and changes of both") {
  const KernelExtents gpt2 = kernel_extents({.batch = 8, .length = 128, .dtype = DType::kBF16});
  CHECK(gpt2.model.hidden == 768);
  CHECK(gpt2.batch == 8);
  CHECK(gpt2.compute == DType::kBF16);
  CHECK(gpt2.gradient == DType::kF32);
  CHECK(gpt2.elements == 124439808 / 13);  // 12 blocks and a root

  const KernelExtents changed =
      kernel_extents({.model = "llama-7b", .shape = "ffn=1000,elements=77,kv_heads=4"});
  CHECK(changed.model.ffn == 1000);
  CHECK(changed.model.kv_heads == 4);
  CHECK(changed.model.hidden == 4096);
  CHECK(changed.elements == 77);

  const std::string folder = test::fixture_path("models/gpt2").string();
  const KernelExtents of_folder = kernel_extents({.model = folder, .length = 4});
  CHECK(of_folder.model.hidden == models::read_config(folder + "/config.json").hidden);
}

TEST_CASE("kernel extents: mistakes are named") {
  const auto error = [](const std::string& shape, int64_t length = 64) {
    return test::error_of([&] { kernel_extents({.shape = shape, .length = length}); });
  };
  CHECK(error("hiden=3") ==
        "--shape: expected NAME=NUMBER with one of elements, ffn, head_dim, heads, hidden, "
        "kv_heads, vocabulary; got \"hiden=3\"");
  CHECK(error("hidden") == "--shape: hidden: expected a positive number, got \"\"");
  for (const char* value : {"0", "-3", "1.5", "x", "99999999999999999999"}) {
    CHECK(test::contains(error(std::string("ffn=1,hidden=") + value), "--shape: hidden: expected"));
  }
  CHECK(test::contains(error("heads=5"), "kv_heads"));
  CHECK(error("", 1025) == "--seq: expected at most the 1024 positions of gpt2-124m, got 1025");
  CHECK(test::contains(test::error_of([] { kernel_extents({.model = "gpt9"}); }), "gpt9"));
}

}  // namespace fsdp::tools
