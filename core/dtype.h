// Element types: the enum that tensors carry, the host types behind it, and their conversion.
// bf16 and f16 are storage types: arithmetic happens in their accumulation type.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "core/error.h"

namespace fsdp {

enum class DType : uint8_t { kF32, kBF16, kF16, kF64, kI32, kI64 };

size_t size_of(DType dtype);               // bytes per element
std::string_view name_of(DType dtype);     // "f32", "bf16", ...
DType parse_dtype(std::string_view name);  // also fp32, float32, bfloat16, ...; Error on others
bool is_floating(DType dtype);
// The type sums, master weights, norms and position tables use: f64 for f64, f32 for the rest.
DType accumulation_dtype(DType dtype);
double largest_finite(DType dtype);  // of a floating dtype

// bfloat16: the upper half of an f32. Conversion from f32 rounds to nearest even; NaN stays NaN.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<uint16_t>(nan ? ((u >> 16) | 0x40u) : rounded);
  }
  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

// IEEE half. GCC's _Float16 compiles to F16C instructions on x86-64-v3; NaN and subnormals as IEEE.
struct Float16 {
  uint16_t bits = 0;
  Float16() = default;
  explicit Float16(float value) : bits(std::bit_cast<uint16_t>(static_cast<_Float16>(value))) {}
  operator float() const { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
};

template <typename T>
using Accumulate = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::kF32;
  if constexpr (std::is_same_v<T, BFloat16>) return DType::kBF16;
  if constexpr (std::is_same_v<T, Float16>) return DType::kF16;
  if constexpr (std::is_same_v<T, double>) return DType::kF64;
  if constexpr (std::is_same_v<T, int32_t>) return DType::kI32;
  if constexpr (std::is_same_v<T, int64_t>) return DType::kI64;
}

template <typename T>
struct TypeTag {
  using type = T;
};

// Calls f(TypeTag<T>{}) with the host type of a floating dtype; Error naming `op` for others.
template <typename F>
decltype(auto) dispatch_floating(DType dtype, std::string_view op, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(TypeTag<float>{});
    case DType::kBF16:
      return f(TypeTag<BFloat16>{});
    case DType::kF16:
      return f(TypeTag<Float16>{});
    case DType::kF64:
      return f(TypeTag<double>{});
    default:
      fail("[{}] dtype: expected a floating type, got {}", op, name_of(dtype));
  }
}

}  // namespace fsdp
