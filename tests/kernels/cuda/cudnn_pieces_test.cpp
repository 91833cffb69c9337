// Which shapes cuDNN has plans for, in which pieces, under the limit of each GPU: a table of
// engines and workspaces. Of test_cudnn_support: GPUs are described, no plan runs. A slow test: a
// second or two a plan. Prints: build/test_cudnn_support --source-file='*cudnn_pieces_test*'
#include "kernels/cuda/cudnn_pieces.h"

#include <cstdio>
#include <span>

#include <doctest/doctest.h>

#include "kernels/meta/gpu_workspace.h"
#include "tests/kernels/cuda/cudnn_cases.h"
#include "tests/kernels/cuda/described_gpu.h"

namespace fsdp::cuda {
namespace {

constexpr int64_t kLengths[] = {512, 1024, 2048, 4096, 8192, 16384, 20480, 32768};
constexpr int64_t kFewLengths[] = {512, 20480, 32768};

struct Model {
  const char* name;
  int64_t heads, kv_heads, head_dim, window;  // window 0: none
};
constexpr Model kModels[] = {
    {"GPT-2", 12, 12, 64, 0},         {"Llama-3 8B", 32, 8, 128, 0},
    {"Mistral 7B", 32, 8, 128, 4096}, {"Qwen2.5 0.5B", 14, 2, 64, 0},
    {"Qwen2.5 1.5B", 12, 2, 128, 0},  {"heads of 80", 32, 8, 80, 0},
    {"heads of 96", 32, 8, 96, 0},    {"heads of 192", 32, 8, 192, 0},
    {"heads of 256", 32, 8, 256, 0},
};
int64_t limit_of(const Gpu& gpu) {
  return static_cast<int64_t>(meta::attention_limit(static_cast<size_t>(gpu.memory)));
}

int64_t pieces_in(int64_t whole, int64_t piece) { return (whole + piece - 1) / piece; }

meta::AnyOrderAttention predicted(const CudnnAttentionKind& kind) {
  return {.heads = kind.batch * kind.heads,
          .queries = kind.queries,
          .keys = kind.keys,
          .head_dim = kind.head_dim,
          .shares_keys = kind.heads > kind.kv_heads};
}

CudnnAttentionKind piece_of(CudnnAttentionKind kind, int64_t batch, int64_t kv_heads) {
  kind.batch = batch;
  kind.heads = kind.heads / kind.kv_heads * kv_heads;
  kind.kv_heads = kv_heads;
  return kind;
}

// The smallest piece, one key-value head of one sample, must fit.
bool has_plan(const Gpu& gpu, const CudnnAttentionKind& kind) {
  if (!kind.backward) return true;
  if (!has_engine(gpu, kind)) return false;
  const CudnnAttentionKind smallest = piece_of(kind, 1, 1);
  return expected_workspace(gpu, smallest).most + sums_bytes(smallest) <= limit_of(gpu);
}

// Prints a line of the table.
void check_shape(const Gpu& gpu, const dnn::Object& device, const std::string& name,
                 const CudnnAttentionKind& kind, Direction direction) {
  const int64_t limit = limit_of(gpu);
  const CudnnPieces pieces = cut_for_cudnn(kind, {.device = device.get()}, limit);
  const std::string line =
      fmt::format("{}  {:<14} T {:>5}  {:<9}", gpu.name, name, kind.queries, name_of(direction));
  CAPTURE(line);
  CHECK((pieces.plan != nullptr) == has_plan(gpu, kind));
  if (!pieces.plan) {
    std::printf("%s  none: %s\n", line.c_str(), pieces.why.c_str());
    CudnnAttentionKind other = kind;
    other.deterministic = false;
    CHECK(pieces.why.ends_with("has a plan that needs less") ==
          (kind.deterministic && has_plan(gpu, other)));
    return;
  }
  const int64_t bytes = pieces.plan->workspace_bytes();
  const double mib = 1 << 20;
  std::printf("%s  engine %lld  workspace %8.2f MiB  sums %7.2f MiB  %lld pieces\n", line.c_str(),
              static_cast<long long>(pieces.plan->engine()), static_cast<double>(bytes) / mib,
              static_cast<double>(pieces.sums_bytes) / mib,
              static_cast<long long>(pieces_in(kind.batch, pieces.batch) *
                                     pieces_in(kind.kv_heads, pieces.kv_heads)));
  std::fflush(stdout);
  const CudnnAttentionKind piece = piece_of(kind, pieces.batch, pieces.kv_heads);
  CHECK(bytes + pieces.sums_bytes <= limit);
  CHECK(bytes >= expected_workspace(gpu, piece).least);
  CHECK(bytes <= expected_workspace(gpu, piece).most);
  if (direction != Direction::kAnyOrder) return;
  CHECK(pieces.sums_bytes == predicted(piece).sums_bytes());
  CHECK(bytes <= predicted(piece).plan_bytes());
}

bool can_ask() {
  if (dnn::missing().empty()) return has_driver();
  std::printf("[SKIP] cuDNN is not there\n");
  return false;
}

void check_lengths(const Gpu& gpu, std::span<const int64_t> lengths) {
  const dnn::Object device = device_of(gpu);
  std::printf("cuDNN %zu, %s: %lld MiB of workspace at the most\n", dnn::library().version(),
              gpu.name, static_cast<long long>(limit_of(gpu) >> 20));
  for (const Model& model : kModels) {
    for (const int64_t length : lengths) {
      const CudnnAttentionKind kind = {.batch = 1,
                                       .heads = model.heads,
                                       .kv_heads = model.kv_heads,
                                       .queries = length,
                                       .keys = length,
                                       .head_dim = model.head_dim,
                                       .window = model.window < length ? model.window : 0};
      for (const Direction direction : kDirections) {
        check_shape(gpu, device, model.name, with_strides(kind, direction), direction);
      }
    }
  }
}

CudnnAttentionKind kind_of(const test::Case& c) {
  return {.batch = c.batch,
          .heads = c.heads,
          .kv_heads = c.kv_heads,
          .queries = c.queries,
          .keys = c.keys,
          .head_dim = c.head_dim,
          .causal = c.causal,
          .window = c.window < c.queries ? c.window : 0,
          .documents = !c.documents.empty(),
          .bias_heads = c.bias.rank() > 0 ? c.bias[1] : 0};
}

TEST_CASE("table of cuDNN's plans: every length on an H100") {
  if (can_ask()) check_lengths(kH100, kLengths);
}

// What lies between them is left out: a minute and a half a GPU.
TEST_CASE("table of cuDNN's plans: a short, a long and the longest length on other GPUs") {
  if (!can_ask()) return;
  for (const Gpu& gpu : {kH200, kA100, kB200}) check_lengths(gpu, kFewLengths);
}

TEST_CASE("table of cuDNN's plans: the shapes of the tests, on an H100 and an A100") {
  if (!can_ask()) return;
  std::vector<test::Case> cases(std::begin(test::kCudnnCases), std::end(test::kCudnnCases));
  cases.insert(cases.end(), std::begin(test::kAnyOrder), std::end(test::kAnyOrder));
  cases.insert(
      cases.end(),
      {test::kLarge, test::kPrime, test::kWide, {1, 1, 1, 128, 128, 8}, {1, 2, 1, 64, 64, 8}});
  for (const Gpu& gpu : {kH100, kA100}) {
    const dnn::Object device = device_of(gpu);
    for (const test::Case& c : cases) {
      for (const Direction direction : kDirections) {
        const bool packed = c.layout != test::Layout::kSeparate;
        CudnnAttentionKind kind = with_strides(kind_of(c), direction, packed);
        if (c.bias.rank() > 0) kind.bias_head_stride = c.bias[2];
        if (c.layout == test::Layout::kInterleaved) {
          for (HeadStrides* each : {&kind.q, &kind.k, &kind.v}) each->head = 3 * c.head_dim;
          if (kind.backward) kind.dq = kind.dk = kind.dv = kind.q;
        }
        check_shape(gpu, device,
                    fmt::format("{} x {}/{} x {}", c.batch, c.heads, c.kv_heads, c.head_dim), kind,
                    direction);
      }
    }
  }
}

}  // namespace
}  // namespace fsdp::cuda
