// Attention by the CUDA backend's own kernels against the CPU backend: lengths around tiles,
// grouped heads, windows, biases, dropout, row layouts, views that are not aligned, queries that
// see nothing, documents that share a row. Attention by cuDNN: cudnn_attention_test.cpp.
#include "tests/support/attention_case.h"
#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

const cuda::CudaOptions kOwnKernels = {.attention = cuda::AttentionChoice::kOwn};

const Case kCases[] = {
    {1, 1, 1, 1, 1, 1},
    {2, 2, 1, 65, 65, 33},              // grouped, one beyond a tile
    {1, 1, 1, 130, 130, 16, true, 20},  // a window that tiles lie outside of
    {1, 4, 2, 5, 70, 24},               // the last queries of longer keys
    {1, 1, 1, 3, 130, 8, true, 5},      // keys that no query sees
    {1, 1, 1, 70, 4, 8},                // the first queries see nothing
    {1, 1, 1, 100, 70, 8},              // and beside them others see one tile
    {1, 1, 1, 33, 100, 72, false},      // wide heads
    {1, 1, 1, 66, 66, 128, false, 6},   // a window without causal
    {2, 3, 3, 17, 17, 40, true, 0, 0, Layout::kInterleaved, {1, 3, 21}},  // ALiBi, a longer table
    {1, 4, 2, 35, 35, 12, true, 0, 0.3, Layout::kPacked},
    {2, 1, 1, 7, 71, 9, true, 0, 0.5},
    {2, 2, 1, 5, 70, 64, true, 0, 0, Layout::kSeparate, {2, 1, 70}},  // hidden keys
    {2, 1, 1, 40, 40, 5, false, 9, 0.2, Layout::kSeparate, {2, 1, 40}},
};

// Relative to the largest weight of a sum, which is one: `roundings` of the dtype. log_sum_exp does
// not pass through it.
void check_results(const std::vector<Values>& actual, const std::vector<Values>& expected,
                   DType dtype) {
  const double f32 = 64 * unit_roundoff(DType::kF32);
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(name_of(dtype));
    CAPTURE(i);
    const double limit = i == 1 ? f32 : 4 * unit_roundoff(dtype) + f32;
    CHECK(largest_error(actual[i], expected[i]) <= limit);
  }
}

TEST_CASE("attention and its gradients are those of the CPU backend, the same bits every time") {
  std::vector<std::vector<Values>> first;
  std::vector<Case> cases(std::begin(kCases), std::end(kCases));
  cases.insert(cases.end(), std::begin(kDocumentCases), std::end(kDocumentCases));
  on_gpu(
      [&](Backend& gpu) {
        cpu::CpuBackend cpu;
        size_t run = 0;
        for (const DType dtype : kGpuTypes) {
          for (const Case& c : cases) {
            if (dtype == DType::kF16 && c.dropout == 0) continue;  // as bf16 but for the name
            CAPTURE(c.queries);
            CAPTURE(c.keys);
            CAPTURE(c.head_dim);
            const Operands o(c, dtype);
            const std::vector<Values> results = run_attention(gpu, c, dtype, o);
            if (run == first.size()) {
              first.push_back(results);
              check_results(results, run_attention(cpu, c, dtype, o), dtype);
            }
            const bool same = results == first[run++];
            CHECK(same);
          }
        }
      },
      kOwnKernels);
}

TEST_CASE("documents of a row: none moves a bit of another, whose tiles are not even read") {
  on_gpu(
      [once = true](Backend& gpu) mutable {  // the test above shows that schedules change nothing
        if (!std::exchange(once, false)) return;
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
          check_documents_apart(gpu, kDocumentsOfTiles, dtype, true);
        }
        for (const Case& c : kDocumentCases) check_documents_apart(gpu, c, DType::kBF16, false);
      },
      kOwnKernels);
}

TEST_CASE("keys and values with room behind them: what lies there is not read into the result") {
  on_gpu(
      [](Backend& gpu) {
        constexpr int64_t kBatch = 2, kQueries = 3, kKeys = 67, kRoom = 80, kHeads = 2, kDim = 16;
        cpu::CpuBackend cpu;
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
          const auto run = [&](Backend& backend) {
            const auto rows = [&](int64_t tokens, uint64_t seed) {
              Values values = random_values(kBatch * tokens * kHeads * kDim, seed);
              for (int64_t b = 0; b < kBatch && tokens == kRoom; ++b) {
                std::fill_n(values.begin() + (b * kRoom + kKeys) * kHeads * kDim,
                            (kRoom - kKeys) * kHeads * kDim, NAN);
              }
              return make_tensor(backend, {kBatch, tokens, kHeads * kDim}, dtype, values);
            };
            const Tensor q = rows(kQueries, 1), k = rows(kRoom, 2), v = rows(kRoom, 3);
            Tensor out = Tensor::empty(backend, q.shape(), dtype);
            Tensor log_sum_exp =
                Tensor::empty(backend, {kBatch, kHeads, kQueries}, accumulation_dtype(dtype));
            const AttentionArgs in = {.q = {&q, kHeads, kDim, 0, kDim},
                                      .k = {&k, kHeads, kDim, 0, kDim},
                                      .v = {&v, kHeads, kDim, 0, kDim},
                                      .keys = kKeys,
                                      .scale = 0.25,
                                      .dropout = {}};
            backend.run(backend.compute_stream(), AttentionForwardArgs{in, out, log_sum_exp});
            return std::vector<Values>{out.to_doubles(), log_sum_exp.to_doubles()};
          };
          check_results(run(gpu), run(cpu), dtype);
        }
      },
      kOwnKernels);
}

TEST_CASE("heads that are too wide are refused by name") {
  on_gpu(
      [](Backend& gpu) {
        const Case c = {1, 1, 1, 2, 2, 136};
        CHECK_THROWS_WITH_AS(run_attention(gpu, c, DType::kF32, Operands(c, DType::kF32)),
                             "[attention_forward] head_dim: expected at most 128 on a GPU, got 136",
                             Error);
      },
      kOwnKernels);
}

}  // namespace
}  // namespace fsdp::test
