// Tensors for tests: reproducible random values, rounded to a dtype on the host, and their limits.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "core/rng.h"
#include "core/tensor.h"

namespace fsdp::test {

// Uniform in [low, high); the same for the same seed.
inline std::vector<double> random_values(int64_t count, uint64_t seed, double low = -1,
                                         double high = 1) {
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const Philox4x32 words =
        philox4x32({static_cast<uint32_t>(i), 0, 0, 0}, {static_cast<uint32_t>(seed), 7});
    values[i] = low + (high - low) * static_cast<double>(uniform_float(words[0]));
  }
  return values;
}

// The values as the dtype stores them.
inline std::vector<double> rounded(std::vector<double> values, DType dtype) {
  dispatch_floating(dtype, "rounded", [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (double& value : values) {
      value = static_cast<double>(static_cast<T>(static_cast<Accumulate<T>>(value)));
    }
  });
  return values;
}

inline Tensor make_tensor(Backend& backend, Shape shape, DType dtype,
                          const std::vector<double>& values) {
  Tensor tensor;
  dispatch_floating(dtype, "make_tensor", [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::vector<T> host;
    for (const double value : values) {
      host.push_back(static_cast<T>(static_cast<Accumulate<T>>(value)));
    }
    tensor = Tensor::from_host(backend, shape, host);
  });
  return tensor;
}

inline Tensor random_tensor(Backend& backend, Shape shape, DType dtype, uint64_t seed,
                            double low = -1, double high = 1) {
  return make_tensor(backend, shape, dtype, random_values(shape.numel(), seed, low, high));
}

// Rows of `columns` values, each followed by `padding` elements that are not numbers: whoever reads
// them shows it.
inline Tensor padded_tensor(Backend& backend, int64_t columns, int64_t padding, DType dtype,
                            const std::vector<double>& values) {
  const int64_t rows = columns > 0 ? static_cast<int64_t>(values.size()) / columns : 0;
  std::vector<double> stored;
  for (auto at = values.begin(); at != values.end(); at += columns) {
    stored.insert(stored.end(), at, at + columns);
    stored.insert(stored.end(), static_cast<size_t>(padding),
                  std::numeric_limits<double>::quiet_NaN());
  }
  return make_tensor(backend, {rows, columns + padding}, dtype, stored);
}

// The first `columns` values of every row.
inline std::vector<double> without_padding(const Tensor& tensor, int64_t columns) {
  const std::vector<double> stored = tensor.to_doubles();
  std::vector<double> values;
  for (auto at = stored.begin(); at != stored.end(); at += tensor.shape().last()) {
    values.insert(values.end(), at, at + columns);
  }
  return values;
}

// Half the distance between neighbouring numbers around 1: the error of one rounding.
inline double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 0x1p-53;
    case DType::kF32:
      return 0x1p-24;
    case DType::kF16:
      return 0x1p-11;
    default:
      return 0x1p-8;  // bf16: 8 significant bits
  }
}

}  // namespace fsdp::test
