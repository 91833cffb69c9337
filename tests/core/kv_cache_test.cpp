// The cache holds what was appended, in order, counts its memory, and says what does not fit.
// Models with a cache: tests/models/causal_lm_cache_test.cpp.
#include "core/kv_cache.h"

#include <doctest/doctest.h>

#include "core/autograd.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/gradient_check.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"

namespace fsdp {
namespace {

constexpr KvCache::Spec kSpec = {
    .layers = 2, .rows = 3, .capacity = 7, .kv_heads = 2, .head_dim = 5};

HeadView heads_of(const Tensor& tensor) { return {&tensor, 2, 5, 0, 5}; }

TEST_CASE("kv cache: columns come back in order, layer by layer") {
  cpu::CpuBackend backend;
  KvCache cache(backend, kSpec);
  std::vector<std::vector<double>> expected(4, std::vector<double>(3 * 7 * 10, 0.0));
  std::vector<KvCache::Entry> entries(2);
  for (const int round : {0, 1}) {  // the second after clear()
    int64_t length = 0;
    for (const int64_t columns : {4, 1, 2}) {
      for (int64_t layer = 0; layer < 2; ++layer) {
        const auto seed = static_cast<uint64_t>(100 * round + 10 * layer + length);
        const Tensor k = test::random_tensor(backend, Shape{3, columns, 10}, DType::kF32, seed);
        const Tensor v = test::random_tensor(backend, Shape{3, columns, 10}, DType::kF32, ~seed);
        entries[static_cast<size_t>(layer)] = cache.append(layer, heads_of(k), heads_of(v));
        CHECK(entries[static_cast<size_t>(layer)].keys == length + columns);
        for (const bool value : {false, true}) {
          const std::vector<double> from = (value ? v : k).to_doubles();
          for (int64_t i = 0; i < 3 * columns * 10; ++i) {
            const int64_t row = i / (columns * 10),
                          at = (row * 7 + length) * 10 + i % (columns * 10);
            expected[static_cast<size_t>(2 * layer + value)][static_cast<size_t>(at)] =
                from[static_cast<size_t>(i)];
          }
        }
      }
      cache.advance(columns);
      length += columns;
      CHECK(cache.length() == length);
    }
    for (size_t layer = 0; layer < 2; ++layer) {
      CHECK(entries[layer].k.tensor->to_doubles() == expected[2 * layer]);
      CHECK(entries[layer].v.tensor->to_doubles() == expected[2 * layer + 1]);
    }
    cache.clear();
    CHECK(cache.length() == 0);
  }
}

TEST_CASE("kv cache: memory is 2 * layers * rows * capacity * heads * width, in its own category") {
  cpu::CpuBackend backend;
  const auto in_use = [&] {
    return backend.ledger().usage().current[static_cast<size_t>(MemoryCategory::kKeyValueCache)];
  };
  {
    KvCache cache(backend, kSpec);
    CHECK(cache.bytes() == 0);
    const Tensor x = Tensor::zeros(backend, Shape{3, 1, 10}, DType::kF32);
    cache.append(0, heads_of(x), heads_of(x));
    const Tensor half = Tensor::zeros(backend, Shape{3, 1, 10}, DType::kBF16);
    cache.append(1, heads_of(half), heads_of(half));  // a layer has the dtype of its own
    CHECK(cache.bytes() == 2 * 3 * 7 * 2 * 5 * (4 + 2));
    CHECK(in_use() == 2 * (rounded_bytes(3 * 7 * 10 * 4) + rounded_bytes(3 * 7 * 10 * 2)));
  }
  CHECK(in_use() == 0);
}

TEST_CASE("kv cache: what does not fit is named") {
  cpu::CpuBackend backend;
  KvCache cache(backend, kSpec);
  const Tensor x = Tensor::zeros(backend, Shape{3, 4, 10}, DType::kF32);
  const auto error = [&](int64_t layer, const Tensor& t) {
    return test::error_of([&] { cache.append(layer, heads_of(t), heads_of(t)); });
  };
  CHECK(error(2, x) == "[kv_cache] layer: expected in [0, 2), got 2");
  cache.append(0, heads_of(x), heads_of(x));
  const Tensor half = Tensor::zeros(backend, Shape{3, 4, 10}, DType::kBF16);
  CHECK(error(0, half) ==
        "[kv_cache] expected 3 rows of 2 heads of 5 in f32, got 3 of 2 of 5 in bf16");
  const Tensor fewer = Tensor::zeros(backend, Shape{2, 4, 10}, DType::kF32);
  CHECK(test::contains(error(0, fewer), "expected 3 rows of 2 heads of 5 in f32, got 2 of 2"));
  cache.advance(4);
  CHECK(error(0, x) == "[kv_cache] columns: expected at most 7, as many of k and v, got 8 and 8");
  CHECK(test::error_of([&] { cache.advance(4); }) ==
        "[kv_cache] columns: expected at most 7, got 8");
  Tape tape(backend);
  const test::Leaf leaf(tape, Tensor::zeros(backend, Shape{3, 1, 10}, DType::kF32));
  CHECK(error(0, leaf.value()) == "[kv_cache] not while gradients are recorded");
  CHECK(test::contains(test::error_of([&] { KvCache(backend, {.layers = 1}); }),
                       "expected positive extents"));
}

}  // namespace
}  // namespace fsdp
