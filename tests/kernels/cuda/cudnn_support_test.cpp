// Whether cuDNN has engines for our graphs of attention on an H200 and an A100, without either: the
// devices are described, the kernels are compiled for them, nothing runs. A program of its own,
// test_cudnn_support, as the emulator of the others has another cuDNN. Skips where cuDNN is not
// installed.
#include <algorithm>
#include <cstdio>
#include <string_view>

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "core/error.h"
#include "kernels/cuda/cudnn_attention_graph.h"

namespace fsdp::cuda {
namespace {

struct Gpu {
  const char* name;
  int multiprocessors, clock_khz, memory_clock_khz, cache, shared_optin, version;
  int64_t memory;
  int bus_bits;
};
// The second's are of its data sheet, not read from one.
constexpr Gpu kGpus[] = {
    {"NVIDIA H200", 132, 1980000, 3201000, 62914560, 232448, 900, 150121545728, 6144},
    {"NVIDIA A100", 108, 1410000, 1593000, 41943040, 166912, 800, 85031714816, 5120},
};

std::string described(const Gpu& gpu) {
  return fmt::format(
      R"({{"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)"
      R"("regsPerBlock":65536,"multiProcessorCount":{},"smClockRateKHz":{},"memClockRateKHz":{},)"
      R"("l2CacheSize":{},"warpSize":32,"maxSharedMemoryPerBlock":49152,)"
      R"("maxSharedMemoryPerBlockOptin":{},"reservedSharedMemoryPerBlock":1024,)"
      R"("maxRegistersPerSM":65536,"pciDeviceId":0,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,)"
      R"("maxThreadsPerSM":2048,"isTccDriver":0,"supportCoopLaunch":1,"deviceVer":{},)"
      R"("driverVer":13000,"deviceName":"{}","cudaDeviceId":0,"totalGlobalMem":{},)"
      R"("smCountOrigin":0,"oversizedSharedMemoryPerBlock":0,"memoryBusWidth":{}}})",
      gpu.multiprocessors, gpu.clock_khz, gpu.memory_clock_khz, gpu.cache, gpu.shared_optin,
      gpu.version, gpu.name, gpu.memory, gpu.bus_bits);
}

bool has_driver() {  // a real one or ours: found by its name from then on
  return ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) ||
         ::dlopen(FSDP_DRIVER_STUB, RTLD_NOW | RTLD_GLOBAL);
}

struct Problem {
  const char* name;
  CudnnAttentionKind kind;
  bool packed = false;  // q, k and v in one tensor
};

CudnnAttentionKind with_strides(const Problem& problem, bool backward) {
  CudnnAttentionKind kind = problem.kind;
  const int64_t of_q = kind.heads * kind.head_dim, of_k = kind.kv_heads * kind.head_dim;
  const int64_t packed = of_q + 2 * of_k;
  const auto rows = [&](int64_t length, int64_t width) {
    return HeadStrides{length * width, width, kind.head_dim};
  };
  kind.q = rows(kind.queries, problem.packed ? packed : of_q);
  kind.k = kind.v = rows(kind.keys, problem.packed ? packed : of_k);
  kind.out = rows(kind.queries, of_q);
  kind.statistics_batch_stride = kind.heads * kind.queries;
  kind.bias_head_stride = kind.bias_heads > 0 ? kind.keys : 0;
  kind.backward = backward;
  if (backward) {
    kind.dq = kind.q;
    kind.dk = kind.dv = kind.k;
  }
  return kind;
}

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
          {"grouped, d 128, window, packed", grouped_window, true}};
}

// What an engine keeps of dscores, and of the gradients of shared keys and values by query head.
int64_t expected_workspace(const CudnnAttentionKind& kind) {
  if (!kind.backward) return 0;
  const auto up = [](int64_t length) { return (length + 127) / 128 * 128; };
  const int64_t heads = kind.batch * kind.heads;
  const int64_t by_head =
      kind.heads == kind.kv_heads ? 0 : 2 * heads * kind.keys * kind.head_dim * 2;
  return heads * up(kind.queries) * up(kind.keys) * 2 + by_head;
}

void check_plan(const Gpu& gpu, dnn::Object& device, const Problem& problem, bool backward) {
  const CudnnAttentionKind kind = with_strides(problem, backward);
  const dnn::Plan::Choice choice =
      dnn::Plan::make(attention_graph(kind), {.device = device.get()}, int64_t{1} << 40);
  CAPTURE(gpu.name);
  CAPTURE(problem.name);
  CAPTURE(backward);
  CAPTURE(choice.why);
  CHECK(choice.plan);
  if (!choice.plan) return;
  std::printf("%s  %-32s %-8s  engine %lld  workspace %8.2f MiB\n", gpu.name, problem.name,
              backward ? "backward" : "forward", static_cast<long long>(choice.plan->engine()),
              static_cast<double>(choice.plan->workspace_bytes()) / (1 << 20));
  CHECK(choice.plan->workspace_bytes() - expected_workspace(kind) <= 4096);
}

// On every GPU, the problems of these names; all without.
void check_plans(const std::vector<std::string_view>& names) {
  if (!dnn::missing().empty()) {
    std::printf("[SKIP] cuDNN is not there\n");
    return;
  }
  REQUIRE(has_driver());
  for (const Gpu& gpu : kGpus) {
    dnn::Object device(dnn::kDeviceProperties);
    const std::string json = described(gpu);
    device.set(dnn::kDeviceJson, json.c_str(), json.size() + 1);
    device.finalize("device properties");
    for (const Problem& problem : problems()) {
      const auto is_it = [&](std::string_view name) { return name == problem.name; };
      if (!names.empty() && std::ranges::none_of(names, is_it)) continue;
      for (const bool backward : {false, true}) check_plan(gpu, device, problem, backward);
    }
    // what the rule leaves to the own kernels is refused here as well
    CudnnAttentionKind narrow = with_strides(problems()[0], false);
    narrow.head_dim = 12;
    CHECK(!dnn::Plan::make(attention_graph(narrow), {.device = device.get()}, 0).plan);
  }
}

// Only described, and half a minute of compiling for each kind: the others are a slow test.
TEST_CASE("cuDNN compiles our graphs: attention of GPT-2, BLOOM and Llama") {
  check_plans({"causal", "ALiBi", "grouped, d 128"});
}

TEST_CASE("cuDNN compiles our graphs: every kind") { check_plans({}); }

}  // namespace
}  // namespace fsdp::cuda
