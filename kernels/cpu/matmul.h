// What the matrix product needs from a library: one product of plain row-major matrices.
// matmul.cpp chooses the library and converts dtypes that it does not have; matmul_onednn.cpp and
// matmul_eigen.cpp compute; matmul_onednn_absent.cpp stands in where oneDNN is not installed.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/dtype.h"
#include "kernels/cpu/parallel.h"

namespace fsdp {
struct MatmulArgs;
}

namespace fsdp::cpu {

// c (m, n) = op(a) op(b) [+ c | + bias]; rows of the stored matrices are `lda`, `ldb`, `ldc`
// elements apart. a is (m, k), or (k, m) when transpose_a; b is (k, n), or (n, k) when transpose_b.
struct Product {
  int64_t m, n, k;
  int64_t lda, ldb, ldc;
  bool transpose_a, transpose_b;
  bool accumulate;
  bool bias;      // (n); never together with accumulate
  DType operand;  // of a, b and bias
  DType result;   // of c

  auto operator<=>(const Product&) const = default;
};

Product product_of(const MatmulArgs& args);
// 16-bit operands that no library here multiplies: through tiles of f32.
bool is_converted(const Product& product);

// Waking the team costs more than it saves below 2^21 multiplications.
inline bool worth_a_team(const Product& p) { return p.m * p.n * p.k >= int64_t{1} << 21; }

struct ProductData {
  const void* a;
  const void* b;
  const void* bias;  // null unless Product::bias
  void* c;
};

// What ConvertedProduct (matmul.cpp) takes for its tiles, in elements of f32.
struct ConversionTiles {
  static constexpr int64_t kM = 512, kN = 512, kK = 1024;
  static constexpr int64_t kPad = 16;  // keeps rows of a tile out of the same cache sets
  static constexpr int64_t kA = (kM + kPad) * (kK + kPad);
  static constexpr int64_t kB = (kN + kPad) * (kK + kPad);
  static constexpr int64_t kC = kM * (kN + kPad);
  static constexpr size_t kBytes = static_cast<size_t>(kA + kB + kC + kN) * sizeof(float);
};

// Of MatmulCache, from a product's sizes alone.
struct ProductNeed {
  size_t bytes = 0;   // scratch memory of each thread that takes part
  size_t copied = 0;  // the same, for a copy of a part of b: apart, since either only grows
  int threads = 1;
};

// oneDNN primitives by Product, made once; belongs to one worker.
class MatmulCache {
 public:
  explicit MatmulCache(bool fixed_tiles = false);  // see CpuOptions
  ~MatmulCache();
  MatmulCache(const MatmulCache&) = delete;
  MatmulCache& operator=(const MatmulCache&) = delete;

  // Whether this machine multiplies these dtypes natively (false for all without oneDNN).
  static bool supports(DType operand, DType result);
  void multiply(const Product& product, const ProductData& data, ThreadTeam& team);
  // What multiply() on a team of `threads` will have taken after it. From any thread.
  static ProductNeed need(const Product& product, int threads, bool fixed_tiles);

 private:
  struct Impl;
  std::vector<std::unique_ptr<Impl>> impls_;  // by thread of the team; made when one takes part
  bool fixed_tiles_;
};

// f32 x f32 -> f32 or f64 x f64 -> f64. The same bits whatever the number of threads.
void multiply_eigen(const Product& product, const ProductData& data, ThreadTeam& team);

}  // namespace fsdp::cpu
