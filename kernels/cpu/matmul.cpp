// CpuBackend::matmul: chooses who multiplies (oneDNN, Eigen), and converts to f32 and back, tile by
// tile, where neither has the dtypes. Read next: matmul.h.
#include "kernels/cpu/matmul.h"

#include "core/layer_args.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/scratch.h"

namespace fsdp::cpu {
namespace {

// The f32 tiles; their scratch is about 5 MiB a worker.
using Tiles = ConversionTiles;
constexpr int64_t kTileM = Tiles::kM, kTileN = Tiles::kN, kTileK = Tiles::kK, kPad = Tiles::kPad;
constexpr int64_t kConvertRows = 16;  // that one thread converts at a time

void multiply_native(const Product& product, const ProductData& data, Worker& worker) {
  if (MatmulCache::supports(product.operand, product.result)) {
    worker.matmul_cache.multiply(product, data, worker.team);
  } else {
    multiply_eigen(product, data, worker.team);
  }
}

// A part of a stored matrix as f32 in scratch memory; remembers which, to convert it only once.
struct Tile {
  float* data;
  int64_t stride = 0;
  int64_t row = -1, column = -1;

  template <typename T>
  void load(const void* matrix, int64_t matrix_stride, int64_t first_row, int64_t rows,
            int64_t first_column, int64_t columns, ThreadTeam& team) {
    if (row == first_row && column == first_column) return;
    row = first_row;
    column = first_column;
    stride = columns + kPad;
    const T* source = static_cast<const T*>(matrix) + row * matrix_stride + column;
    team.parallel_for(rows, kConvertRows, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        convert(source + i * matrix_stride, data + i * stride, columns);
      }
    });
  }
};

// c (rows, columns) (+)= tile, rounded once.
template <typename T>
void store(const Tile& tile, T* c, int64_t ldc, int64_t rows, int64_t columns, bool accumulate,
           ThreadTeam& team) {
  team.parallel_for(rows, kConvertRows, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* from = tile.data + i * tile.stride;
      T* to = c + i * ldc;
      if (accumulate) {
        for (int64_t j = 0; j < columns; ++j) from[j] += static_cast<float>(to[j]);
      }
      convert(from, to, columns);
    }
  });
}

// 16-bit operands through f32 tiles: T of a, b and bias; c is T or f32.
template <typename T>
class ConvertedProduct {
 public:
  ConvertedProduct(const Product& product, const ProductData& data, Worker& worker)
      : p_(product), data_(data), worker_(worker) {
    auto* scratch = static_cast<float*>(worker.team.scratch(0, Tiles::kBytes));
    a_.data = scratch;
    b_.data = a_.data + Tiles::kA;
    c_.data = b_.data + Tiles::kB;
    bias_ = c_.data + Tiles::kC;
  }

  void run() {
    for (int64_t n = 0; n < p_.n; n += kTileN) {
      for (int64_t m = 0; m < p_.m; m += kTileM) multiply_tile(m, n);
    }
  }

 private:
  void multiply_tile(int64_t m, int64_t n) {
    Product part = p_;
    part.operand = part.result = DType::kF32;
    part.m = std::min(kTileM, p_.m - m);
    part.n = std::min(kTileN, p_.n - n);
    const bool direct = p_.result == DType::kF32;  // c itself holds the partial sums
    auto* c = static_cast<std::byte*>(data_.c) +
              (m * p_.ldc + n) * static_cast<int64_t>(size_of(p_.result));
    c_.stride = part.n + kPad;
    part.ldc = direct ? p_.ldc : c_.stride;
    if (p_.bias) convert(static_cast<const T*>(data_.bias) + n, bias_, part.n);
    for (int64_t k = 0; k < p_.k; k += kTileK) {
      part.k = std::min(kTileK, p_.k - k);
      part.bias = p_.bias && k == 0;
      part.accumulate = k > 0 || (direct && p_.accumulate);
      load(a_, data_.a, p_.lda, p_.transpose_a, m, part.m, k, part.k);
      load(b_, data_.b, p_.ldb, !p_.transpose_b, n, part.n, k, part.k);
      part.lda = a_.stride;
      part.ldb = b_.stride;
      const ProductData data{a_.data, b_.data, part.bias ? bias_ : nullptr,
                             direct ? reinterpret_cast<float*>(c) : c_.data};
      multiply_native(part, data, worker_);
    }
    if (!direct) {
      store(c_, reinterpret_cast<T*>(c), p_.ldc, part.m, part.n, p_.accumulate, worker_.team);
    }
  }

  // `outer` is the dimension of m or n; k runs down the stored rows when `k_rows`.
  void load(Tile& tile, const void* matrix, int64_t stride, bool k_rows, int64_t outer,
            int64_t outers, int64_t k, int64_t ks) {
    if (k_rows) {
      tile.load<T>(matrix, stride, k, ks, outer, outers, worker_.team);
    } else {
      tile.load<T>(matrix, stride, outer, outers, k, ks, worker_.team);
    }
  }

  const Product& p_;
  const ProductData& data_;
  Worker& worker_;
  Tile a_, b_, c_;
  float* bias_;
};

// The sum over no terms: c = bias or 0.
template <typename T, typename C>
void multiply_empty(const Product& p, const ProductData& data) {
  if (p.accumulate) return;
  for (int64_t i = 0; i < p.m * p.n; ++i) {
    const T bias = p.bias ? static_cast<const T*>(data.bias)[i % p.n] : T{};
    static_cast<C*>(data.c)[i / p.n * p.ldc + i % p.n] = static_cast<C>(bias);
  }
}

void multiply(const Product& p, const ProductData& data, Worker& worker) {
  if (p.m == 0 || p.n == 0) return;
  dispatch_floating(p.operand, "matmul", [&]<typename T>(TypeTag<T>) {
    if (p.k == 0) {
      p.result == p.operand ? multiply_empty<T, T>(p, data) : multiply_empty<T, float>(p, data);
    } else if (is_converted(p)) {
      ConvertedProduct<T>(p, data, worker).run();
    } else {
      multiply_native(p, data, worker);
    }
  });
}

}  // namespace

bool is_converted(const Product& p) {
  return size_of(p.operand) == 2 && !MatmulCache::supports(p.operand, p.result);
}

Product product_of(const MatmulArgs& args) {
  const Shape a = args.a.shape(), b = args.b.shape();
  const DType result = args.c.dtype();
  FSDP_CHECK(result == args.a.dtype() || result == accumulation_dtype(args.a.dtype()),
             "[matmul] result: expected {} or {} for operands of {}, got {}",
             name_of(args.a.dtype()), name_of(accumulation_dtype(args.a.dtype())),
             name_of(args.a.dtype()), name_of(result));
  const Tensor& target = args.pre_activation ? *args.pre_activation : args.c;
  Product product{};
  product.m = target.shape().rows();
  product.n = args.transpose_b ? b.rows() : b.last();
  product.k = args.transpose_b ? b.last() : b.rows();
  // A single row is followed by none: oneDNN takes products that differ in that stride for the
  // same, and gives all of them the code of the first.
  product.lda = a.rows() > 1 ? a.last() : args.transpose_a ? product.m : product.k;
  product.ldb = b.last();
  product.ldc = product.m > 1 ? target.shape().last() : product.n;
  product.transpose_a = args.transpose_a;
  product.transpose_b = args.transpose_b;
  product.accumulate = args.accumulate;
  product.bias = args.bias != nullptr;
  product.operand = args.a.dtype();
  product.result = target.dtype();
  return product;
}

template <>
void CpuBackend::compute(Stream& stream, const ActivationForwardArgs& args);

template <>
void CpuBackend::compute(Stream& stream, const MatmulArgs& args) {
  const Product product = product_of(args);
  plan_scratch(stream, product_scratch_->of(args, planned_threads(stream)));
  Tensor& target = args.pre_activation ? *args.pre_activation : args.c;
  ProductData data{args.a.data(), args.b.data(), args.bias ? args.bias->data() : nullptr,
                   target.data()};
  enqueue(stream, "matmul", 0,
          [product, data](Worker& worker) { multiply(product, data, worker); });
  if (args.activation != Activation::kNone) {
    compute(stream, ActivationForwardArgs{args.activation, *args.pre_activation, args.c});
  }
}

}  // namespace fsdp::cpu
