// Whether cuDNN has engines for our graphs of attention on GPUs that are not there: the devices are
// described, the kernels are compiled for them, nothing runs. A program of its own,
// test_cudnn_support, as the emulator of the others has another cuDNN. Skips where cuDNN is not
// installed.
#include <algorithm>
#include <cstdio>
#include <string_view>

#include <doctest/doctest.h>

#include "tests/kernels/cuda/described_gpu.h"

namespace fsdp::cuda {
namespace {

struct Problem {
  const char* name;
  CudnnAttentionKind kind;
  bool packed = false;  // q, k and v in one tensor
};

std::vector<Problem> problems() {
  const auto of = [](DType dtype, int64_t heads, int64_t kv_heads, int64_t length, int64_t dim) {
    return CudnnAttentionKind{.dtype = dtype,
                              .batch = 8,
                              .heads = heads,
                              .kv_heads = kv_heads,
                              .queries = length,
                              .keys = length,
                              .head_dim = dim};
  };
  const CudnnAttentionKind gpt2 = of(DType::kBF16, 12, 12, 1024, 64);
  const CudnnAttentionKind llama = of(DType::kBF16, 32, 8, 2048, 128);
  CudnnAttentionKind full = gpt2, window = gpt2, bias = gpt2, bias_of_all = gpt2, longer = gpt2;
  full.causal = longer.causal = false;
  window.window = 256;
  bias.bias_heads = 12;
  bias_of_all.bias_heads = 1;
  longer.queries = 128;
  CudnnAttentionKind grouped_window = llama;
  grouped_window.window = 1024;
  CudnnAttentionKind documents = grouped_window, documents_bias = bias;
  documents.documents = documents_bias.documents = true;
  return {{"causal", gpt2},
          {"causal, packed", gpt2, true},
          {"all keys", full},
          {"all of more keys", longer},
          {"window 256", window},
          {"ALiBi", bias},
          {"a bias for all heads", bias_of_all},
          {"T 1000", of(DType::kBF16, 12, 12, 1000, 64)},
          {"f16", of(DType::kF16, 12, 12, 1024, 64)},
          {"grouped, d 64", of(DType::kF16, 32, 8, 1024, 64)},
          {"grouped, d 128", llama},
          {"grouped, d 128, window, packed", grouped_window, true},
          {"documents, grouped, window", documents},
          {"documents, ALiBi", documents_bias}};
}

void check_plan(const Gpu& gpu, const dnn::Object& device, const Problem& problem,
                Direction direction) {
  const CudnnAttentionKind kind = with_strides(problem.kind, direction, problem.packed);
  // The graph alone decides about dq: no engine says of itself that it gives other bits.
  const dnn::Plan::Choice choice = dnn::Plan::make(attention_graph(kind), {.device = device.get()},
                                                   {.workspace_limit = int64_t{1} << 40});
  CAPTURE(gpu.name);
  CAPTURE(problem.name);
  CAPTURE(name_of(direction));
  CAPTURE(choice.why);
  CHECK((choice.plan != nullptr) == has_engine(gpu, kind));
  if (!choice.plan) return;
  const int64_t bytes = choice.plan->workspace_bytes();
  std::printf("%s  %-32s %-9s  engine %lld  workspace %8.2f MiB\n", gpu.name, problem.name,
              name_of(direction), static_cast<long long>(choice.plan->engine()),
              static_cast<double>(bytes) / (1 << 20));
  CHECK(bytes >= expected_workspace(gpu, kind).least);
  CHECK(bytes <= expected_workspace(gpu, kind).most);
}

// On each GPU, the problems of these names; all without.
void check_plans(std::initializer_list<Gpu> gpus, const std::vector<std::string_view>& names) {
  if (!dnn::missing().empty()) {
    std::printf("[SKIP] cuDNN is not there\n");
    return;
  }
  REQUIRE(has_driver());
  for (const Gpu& gpu : gpus) {
    const dnn::Object device = device_of(gpu);
    for (const Problem& problem : problems()) {
      const auto is_it = [&](std::string_view name) { return name == problem.name; };
      if (!names.empty() && std::ranges::none_of(names, is_it)) continue;
      for (const Direction direction : kDirections) check_plan(gpu, device, problem, direction);
    }
    // what the rule leaves to the own kernels is refused here as well
    CudnnAttentionKind narrow = with_strides(problems()[0].kind, Direction::kForward);
    narrow.head_dim = 12;
    CHECK(!dnn::Plan::make(attention_graph(narrow), {.device = device.get()}, {}).plan);
  }
}

// Only described, and half a minute of compiling for each kind: the others are a slow test.
TEST_CASE("cuDNN compiles our graphs: attention of GPT-2, BLOOM and Llama") {
  check_plans({kH200, kA100}, {"causal", "ALiBi", "grouped, d 128", "documents, grouped, window"});
}

TEST_CASE("cuDNN compiles our graphs: every kind") {
  check_plans({kH100, kH200, kA100, kB200}, {});
}

}  // namespace
}  // namespace fsdp::cuda
