// Attention by cuDNN against the CPU backend, and what is handed to it at all. On the emulator the
// graph is run operation by operation, so that these are tests of the graph; on a GPU, of the
// library. Whether its engines take the graphs, without a GPU: cudnn_support_test.cpp.
#include "kernels/cuda/cudnn_attention.h"

#include <algorithm>

#include "tests/kernels/cuda/cudnn_cases.h"
#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

using cuda::AttentionChoice;

const cuda::CudaOptions kCudnn = {.attention = AttentionChoice::kCudnn};

bool without_cudnn() {
  const bool missing = !cuda::cudnn_missing().empty();
  if (missing) std::printf("[SKIP] cuDNN is not there\n");
  return missing;
}

// Relative to the largest weight of a sum, which is one. Shared heads add up gradients that were
// rounded before. log_sum_exp does not pass through the dtype.
void check_results(const std::vector<Values>& actual, const std::vector<Values>& expected,
                   DType dtype, int64_t group) {
  const double f32 = 64 * unit_roundoff(DType::kF32);
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(name_of(dtype));
    CAPTURE(i);
    const double roundings = 4 + (i > 2 && group > 1 ? static_cast<double>(group) : 0.0);
    CHECK(largest_error(actual[i], expected[i]) <=
          (i == 1 ? f32 : roundings * unit_roundoff(dtype) + f32));
  }
}

// A real cuDNN needs seconds to plan a case, so each case is printed as it ends.
void check_all_cases(DType dtype) {
  if (without_cudnn()) return;
  std::vector<std::vector<Values>> first;
  on_gpu(
      [&](cuda::CudaBackend& gpu) {
        cpu::CpuBackend cpu;
        size_t run = 0;
        for (const Case& c : kCudnnCases) {
          CAPTURE(c.heads);
          CAPTURE(c.queries);
          CAPTURE(c.keys);
          CAPTURE(c.head_dim);
          CAPTURE(c.window);
          const Operands o(c, dtype);
          const int64_t before = gpu.cudnn_attention()->runs();
          const std::vector<Values> results = run_attention(gpu, c, dtype, o);
          CHECK(gpu.cudnn_attention()->runs() == before + 2);  // forward and backward
          if (run == first.size()) {
            first.push_back(results);
            check_results(results, run_attention(cpu, c, dtype, o), dtype, c.heads / c.kv_heads);
            if (!emulated(gpu)) {
              fmt::print("cuDNN: {}, {} heads of {}, {} x {} tokens\n", name_of(dtype), c.heads,
                         c.head_dim, c.queries, c.keys);
            }
          }
          const bool same = results == first[run++];
          CHECK(same);
        }
      },
      kCudnn);
}

TEST_CASE("attention by cuDNN equals the CPU backend, with the same bits every time: bf16") {
  check_all_cases(DType::kBF16);
}

TEST_CASE("attention by cuDNN equals the CPU backend, with the same bits every time: f16") {
  check_all_cases(DType::kF16);
}

int64_t workspace_peak(cuda::CudaBackend& gpu) {
  return static_cast<int64_t>(
      gpu.ledger().usage().peak[static_cast<size_t>(MemoryCategory::kWorkspace)]);
}

int64_t as_allocated(int64_t bytes) { return (bytes + 511) / 512 * 512; }

// Of one head, as the emulated engine keeps them: the scores' gradients, and those of shared keys
// and values by query head.
constexpr int64_t kByHead = 2 * 64 * 8 * 2, kScores = 64 * 64 * 2 + kByHead;
constexpr int64_t kAlways = 256;  // bytes that it takes besides

struct Pieces {
  int64_t workspace;  // limit, bytes
  int64_t backward;   // runs
};

TEST_CASE("on the emulator a backward pass is cut into pieces whose workspace fits") {
  const Operands o(kLarge, DType::kBF16);
  std::vector<Values> whole;
  // A piece: all; two samples; one; one with a third of its heads. In the last one not even that
  // has room, but all does in the engine that takes less.
  for (const auto& [workspace, backward] : {Pieces{kScores << 20, 1},
                                            {kAlways + 24 * kScores, 1},
                                            {kAlways + 24 * kScores - 1, 2},
                                            {kAlways + 12 * kScores, 2},
                                            {kAlways + 6 * kScores, 4},
                                            {kAlways + 2 * kScores, 12},
                                            {kAlways + 2 * kScores - 1, 1}}) {
    on_gpu(
        [&, workspace = workspace, backward = backward](cuda::CudaBackend& gpu) {
          if (!emulated(gpu)) return;
          gpu.ledger().reset_peak();
          const std::vector<Values> results = run_attention(gpu, kLarge, DType::kBF16, o);
          if (whole.empty()) whole = results;
          CAPTURE(workspace);
          const bool same = results == whole;
          CHECK(same);
          CHECK(workspace_peak(gpu) > 0);
          CHECK(workspace_peak(gpu) <= as_allocated(workspace));
          CHECK(gpu.cudnn_attention()->runs() == 1 + backward);
        },
        {.attention = AttentionChoice::kCudnn, .attention_workspace = size_t(workspace)});
  }
}

TEST_CASE("on the emulator the last piece is shorter where the others do not divide the whole") {
  const Case& prime = kPrime;
  const Operands o(prime, DType::kBF16);
  std::vector<Values> whole;
  // Two samples, and one; one sample with two groups of heads, and with one.
  for (const auto& [workspace, backward] :
       {Pieces{kScores << 20, 1}, {kAlways + 12 * kScores, 3}, {kAlways + 4 * kScores, 10}}) {
    on_gpu(
        [&, workspace = workspace, backward = backward](cuda::CudaBackend& gpu) {
          if (!emulated(gpu)) return;
          const std::vector<Values> results = run_attention(gpu, prime, DType::kBF16, o);
          if (whole.empty()) whole = results;
          CAPTURE(workspace);
          const bool same = results == whole;
          CHECK(same);
          CHECK(gpu.cudnn_attention()->runs() == 1 + backward);
        },
        {.attention = AttentionChoice::kCudnn, .attention_workspace = size_t(workspace)});
  }
}

// What an engine takes is its own affair, so the limits follow from what the whole took.
TEST_CASE("with less and less workspace attention is still that of the CPU backend") {
  if (without_cudnn()) return;
  const Operands o(kLarge, DType::kBF16);
  cpu::CpuBackend cpu;
  const std::vector<Values> expected = run_attention(cpu, kLarge, DType::kBF16, o);
  int64_t whole = 0;
  on_gpu([&](cuda::CudaBackend& gpu) {
    gpu.ledger().reset_peak();
    check_results(run_attention(gpu, kLarge, DType::kBF16, o), expected, DType::kBF16, 2);
    CHECK(gpu.cudnn_attention()->runs() == 2);
    whole = workspace_peak(gpu);
  });
  for (const int64_t limit : {whole - 512, whole / 2, whole / 4, whole / 16}) {
    if (limit <= 0) continue;  // no GPU, or an engine that takes none
    on_gpu(
        [&](cuda::CudaBackend& gpu) {
          CAPTURE(limit);
          gpu.ledger().reset_peak();
          check_results(run_attention(gpu, kLarge, DType::kBF16, o), expected, DType::kBF16, 2);
          CHECK(workspace_peak(gpu) <= as_allocated(limit));
        },
        {.attention_workspace = size_t(limit)});
  }
}

// In bytes, of a number of heads: as CudnnAttention and the emulated engine keep them.
int64_t sums_of(const Case& c, int64_t heads) { return 4 * heads * c.queries * c.head_dim; }
int64_t any_order_plan(const Case& c, int64_t heads) {
  return kAlways + sums_of(c, heads) +
         (c.heads > c.kv_heads ? 2 * 2 * heads * c.keys * c.head_dim : 0);
}

// The largest piece: all; two samples, so that the last is shorter; a sample; a head of keys.
TEST_CASE("with dq added up in any order attention is what it is in a fixed order, in all pieces") {
  if (without_cudnn()) return;
  for (const Case& c : kAnyOrder) {
    CAPTURE(c.window);
    CAPTURE(c.kv_heads);
    const Operands o(c, DType::kBF16);
    std::vector<Values> ordered;
    on_gpu([&](cuda::CudaBackend& gpu) { ordered = run_attention(gpu, c, DType::kBF16, o); },
           kCudnn);
    for (const auto& [heads, runs] : {std::pair{3 * c.heads, int64_t{1}},
                                      {2 * c.heads, int64_t{2}},
                                      {c.heads, int64_t{3}},
                                      {c.heads / c.kv_heads, 3 * c.kv_heads}}) {
      const int64_t sums = sums_of(c, heads), plan = any_order_plan(c, heads);
      const auto check = [&, runs = runs](cuda::CudaBackend& gpu) {
        CAPTURE(runs);
        gpu.ledger().reset_peak();
        check_results(run_attention(gpu, c, DType::kBF16, o), ordered, DType::kBF16,
                      c.heads / c.kv_heads);
        if (!emulated(gpu)) return;
        CHECK(gpu.cudnn_attention()->runs() == 1 + runs);
        CHECK(workspace_peak(gpu) == as_allocated(sums) + as_allocated(plan));
      };
      on_gpu(check, {.attention = AttentionChoice::kCudnn,
                     .attention_workspace = static_cast<size_t>(sums + plan),
                     .attention_deterministic = false});
    }
  }
}

TEST_CASE("what no piece has room for is left to the own kernels, or an error by name") {
  if (without_cudnn()) return;
  const Case c = {1, 2, 1, 64, 64, 8};
  const Operands o(c, DType::kF16);
  cpu::CpuBackend cpu;
  on_gpu(
      [&](cuda::CudaBackend& gpu) {
        check_results(run_attention(gpu, c, DType::kF16, o), run_attention(cpu, c, DType::kF16, o),
                      DType::kF16, 2);
        // forward, if its engine takes none
        CHECK(gpu.cudnn_attention()->runs() <= 1);
        if (emulated(gpu)) CHECK(gpu.cudnn_attention()->runs() == 1);
      },
      {.attention_workspace = 100});
  on_gpu(
      [&](cuda::CudaBackend& gpu) {
        std::string message;
        try {
          run_attention(gpu, c, DType::kF16, o);
        } catch (const Error& error) {
          message = error.what();
        }
        CAPTURE(message);
        CHECK(message.starts_with(emulated(gpu) ? "[attention_backward " : "[attention_"));
        CHECK(message.find("runtime.attention: cudnn, but this is not for cuDNN: cuDNN's engine") !=
              std::string::npos);
        CHECK(message.ends_with("bytes of workspace: expected at most 100"));
      },
      {.attention = AttentionChoice::kCudnn, .attention_workspace = 100});
}

struct Refused {
  const char* why;
  DType dtype;
  Case c;
};
const Refused kRefused[] = {
    {"it is in f32", DType::kF32, {1, 1, 1, 64, 64, 8}},
    {"head_dim 12 is no multiple of 8", DType::kBF16, {1, 1, 1, 64, 64, 12}},
    {"its dropout draws other numbers", DType::kBF16, {1, 1, 1, 64, 64, 8, true, 0, 0.5}},
    {"a mask over 64 queries and 70 keys", DType::kBF16, {1, 1, 1, 64, 70, 8}},
    {"a mask over 64 queries and 70 keys", DType::kBF16, {1, 1, 1, 64, 70, 8, false, 3}},
    {"a window that is not causal", DType::kBF16, {1, 1, 1, 64, 64, 8, false, 6}},
    {"documents in rows that do not begin at 16 bytes",
     DType::kBF16,
     {2, 2, 1, 66, 66, 8, true, 0, 0, Layout::kSeparate, {}, {40, 30}}},
    {"a query may see no key",
     DType::kBF16,
     {2, 1, 1, 64, 64, 8, true, 0, 0, Layout::kSeparate, {2, 1, 64}}},
    {"a window with a key bias",
     DType::kBF16,
     {2, 2, 2, 64, 64, 8, true, 5, 0, Layout::kSeparate, {1, 2, 64}}},
    {"a key bias not at 16 bytes",
     DType::kBF16,
     {2, 2, 2, 64, 64, 8, true, 0, 0, Layout::kSeparate, {1, 2, 65}}},
};

TEST_CASE("what follows another rule is left to the own kernels, or an error by name") {
  if (without_cudnn()) return;
  for (const AttentionChoice choice : {AttentionChoice::kAuto, AttentionChoice::kCudnn}) {
    on_gpu(
        [&](cuda::CudaBackend& gpu) {
          cpu::CpuBackend cpu;
          for (const auto& [why, dtype, c] : kRefused) {
            CAPTURE(why);
            const Operands o(c, dtype);
            std::string message;
            try {
              check_results(run_attention(gpu, c, dtype, o), run_attention(cpu, c, dtype, o), dtype,
                            1);
            } catch (const Error& error) {
              message = error.what();
            }
            const std::string said = std::string("not for cuDNN: ") + why;
            CHECK((choice == AttentionChoice::kAuto ? message.empty() : message.ends_with(said)));
          }
          CHECK(gpu.cudnn_attention()->runs() == 0);
        },
        {.attention = choice});
  }
}

TEST_CASE("rows that do not begin at 16 bytes are left to the own kernels") {
  if (without_cudnn()) return;
  on_gpu([](cuda::CudaBackend& gpu) {
    const int64_t tokens = 64, dim = 8;
    for (const int64_t offset : {0, 1}) {
      const Tensor q = shifted_tensor(gpu, {1, tokens, dim}, DType::kBF16,
                                      random_values(tokens * dim, 1), offset);
      const HeadView view = {&q, 1, dim, 0, dim};
      Tensor out = Tensor::empty(gpu, q.shape(), DType::kBF16);
      Tensor log_sum_exp = Tensor::empty(gpu, {1, 1, tokens}, DType::kF32);
      const AttentionArgs in = {.q = view, .k = view, .v = view, .scale = 1, .dropout = {}};
      CHECK(cuda::not_for_cudnn({in, out, log_sum_exp}) ==
            (offset == 0 ? "" : "rows that do not begin at 16 bytes"));
      gpu.run(gpu.compute_stream(), AttentionForwardArgs{in, out, log_sum_exp});
      CHECK(gpu.cudnn_attention()->runs() == 1);
    }
  });
}

TEST_CASE("left to itself the backend has plans made for multiples of 64 tokens only") {
  if (without_cudnn()) return;
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const int64_t tokens : {63, 64, 65, 128}) {
      const Case c = {1, 1, 1, tokens, tokens, 8};
      const int64_t before = gpu.cudnn_attention()->runs();
      run_attention(gpu, c, DType::kBF16, Operands(c, DType::kBF16));
      CHECK(gpu.cudnn_attention()->runs() - before == (tokens % 64 == 0 ? 2 : 0));
    }
  });
  on_gpu([](cuda::CudaBackend& gpu) {  // the own kernels have none for heads so wide
    if (!emulated(gpu) && gpu.device().major < 9) return;
    const Case& c = kWide;
    const Operands o(c, DType::kBF16);
    cpu::CpuBackend cpu;
    check_results(run_attention(gpu, c, DType::kBF16, o), run_attention(cpu, c, DType::kBF16, o),
                  DType::kBF16, 1);
    CHECK(gpu.cudnn_attention()->runs() == 2);
  });
  on_gpu([](cuda::CudaBackend& gpu) { CHECK(gpu.cudnn_attention() == nullptr); },
         {.attention = AttentionChoice::kOwn});
}

}  // namespace
}  // namespace fsdp::test
