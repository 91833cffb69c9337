// Matrix products by Eigen: where oneDNN is absent, and for f64. Eigen computes tiles on one thread
// each; the team's threads share the tiles.
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>

#include "kernels/cpu/matmul.h"

namespace fsdp::cpu {
namespace {

// Tiles of c, the same for any number of threads: the order of a sum in Eigen depends on the sizes.
constexpr int64_t kTileRows = 256;
constexpr int64_t kTileColumns = 512;

template <typename T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <typename T>
using ConstMap = Eigen::Map<const Matrix<T>, 0, Eigen::OuterStride<>>;
template <typename T>
using MutableMap = Eigen::Map<Matrix<T>, 0, Eigen::OuterStride<>>;

// Columns [first, first + count) of a matrix, or its rows when it is transposed: (depth, count).
template <typename T>
ConstMap<T> slice(const void* data, int64_t stride, bool rows, int64_t first, int64_t count,
                  int64_t depth) {
  const T* start = static_cast<const T*>(data) + (rows ? first * stride : first);
  return ConstMap<T>(start, rows ? count : depth, rows ? depth : count,
                     Eigen::OuterStride<>(stride));
}

template <typename T>
void multiply_tile(const Product& p, const ProductData& data, int64_t row, int64_t column) {
  const int64_t rows = std::min(kTileRows, p.m - row);
  const int64_t columns = std::min(kTileColumns, p.n - column);
  const auto a = slice<T>(data.a, p.lda, !p.transpose_a, row, rows, p.k);
  const auto b = slice<T>(data.b, p.ldb, p.transpose_b, column, columns, p.k);
  MutableMap<T> c(static_cast<T*>(data.c) + row * p.ldc + column, rows, columns,
                  Eigen::OuterStride<>(p.ldc));
  if (p.bias) {
    using Row = Eigen::Matrix<T, 1, Eigen::Dynamic>;
    c.rowwise() = Eigen::Map<const Row>(static_cast<const T*>(data.bias) + column, columns);
  } else if (!p.accumulate) {
    c.setZero();
  }
  if (p.transpose_a && p.transpose_b) {
    c.noalias() += a.transpose() * b.transpose();
  } else if (p.transpose_a) {
    c.noalias() += a.transpose() * b;
  } else if (p.transpose_b) {
    c.noalias() += a * b.transpose();
  } else {
    c.noalias() += a * b;
  }
}

}  // namespace

void multiply_eigen(const Product& product, const ProductData& data, ThreadTeam& team) {
  const int64_t tiles_across = (product.n + kTileColumns - 1) / kTileColumns;
  const int64_t tiles_down = (product.m + kTileRows - 1) / kTileRows;
  const auto multiply = [&](int64_t tile, int) {
    const int64_t row = tile / tiles_across * kTileRows;
    const int64_t column = tile % tiles_across * kTileColumns;
    if (product.operand == DType::kF64) {
      multiply_tile<double>(product, data, row, column);
    } else {
      multiply_tile<float>(product, data, row, column);
    }
  };
  const int64_t tiles = tiles_across * tiles_down;
  if (worth_a_team(product)) {
    team.run(tiles, multiply);
  } else {
    for (int64_t tile = 0; tile < tiles; ++tile) multiply(tile, 0);
  }
}

}  // namespace fsdp::cpu
