// Element types: names, sizes, and the rounding of the 16-bit ones against arithmetic in double.
#include "core/dtype.h"

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "core/rng.h"
#include "tests/support/temp_folder.h"

namespace fsdp {
namespace {

using test::error_of;

// The nearest value with `bits` significant bits, ties to even; for values in the normal range.
double nearest(double value, int bits) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);  // in [0.5, 1)
  return std::ldexp(std::nearbyint(std::ldexp(fraction, bits)), exponent - bits);
}

TEST_CASE("names, sizes and classes of dtypes") {
  struct Row {
    DType dtype;
    const char* name;
    size_t bytes;
    bool floating;
    DType accumulation;
  };
  for (const Row& row : {Row{DType::kF32, "f32", 4, true, DType::kF32},
                         Row{DType::kBF16, "bf16", 2, true, DType::kF32},
                         Row{DType::kF16, "f16", 2, true, DType::kF32},
                         Row{DType::kF64, "f64", 8, true, DType::kF64},
                         Row{DType::kI32, "i32", 4, false, DType::kF32},
                         Row{DType::kI64, "i64", 8, false, DType::kF32}}) {
    CAPTURE(row.name);
    CHECK(name_of(row.dtype) == row.name);
    CHECK(parse_dtype(row.name) == row.dtype);
    CHECK(size_of(row.dtype) == row.bytes);
    CHECK(is_floating(row.dtype) == row.floating);
    CHECK(accumulation_dtype(row.dtype) == row.accumulation);
  }
}

TEST_CASE("parse_dtype knows the common spellings and lists the names otherwise") {
  for (const char* name : {"fp32", "float32", "float"}) CHECK(parse_dtype(name) == DType::kF32);
  for (const char* name : {"fp64", "float64", "double"}) CHECK(parse_dtype(name) == DType::kF64);
  for (const char* name : {"fp16", "float16", "half"}) CHECK(parse_dtype(name) == DType::kF16);
  CHECK(parse_dtype("bfloat16") == DType::kBF16);
  CHECK(parse_dtype("int32") == DType::kI32);
  CHECK(parse_dtype("int64") == DType::kI64);
  CHECK(error_of([] { parse_dtype("F32"); }) ==
        "dtype: expected one of f64, f32, bf16, f16, i32, i64, got 'F32'");
  CHECK(error_of([] { parse_dtype(""); }) != "");
}

TEST_CASE("bf16 and f16 round to nearest, ties to even") {
  for (uint32_t i = 0; i < 20000; ++i) {
    const Philox4x32 words = philox4x32({i, 0, 0, 0}, {3, 0});
    // 12 random bits below the leading one hit ties of both formats often; exponents -14..15.
    const double value =
        std::ldexp(1 + (words[0] & 0xfffu) * 0x1p-12, static_cast<int>(words[1] % 29) - 14) *
        ((words[2] & 1) != 0 ? -1 : 1);
    CAPTURE(value);
    REQUIRE(static_cast<double>(BFloat16(static_cast<float>(value))) == nearest(value, 8));
    REQUIRE(static_cast<double>(Float16(static_cast<float>(value))) == nearest(value, 11));
  }
  CHECK(BFloat16(1 + 0x1p-8f).bits == BFloat16(1.0f).bits);             // tie: down to even
  CHECK(static_cast<float>(BFloat16(1 + 3 * 0x1p-8f)) == 1 + 0x1p-6f);  // tie: up to even
}

TEST_CASE("bf16 and f16 keep what is special") {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(static_cast<float>(BFloat16(infinity)) == infinity);
  CHECK(static_cast<float>(BFloat16(-infinity)) == -infinity);
  CHECK(std::isnan(static_cast<float>(BFloat16(nan))));
  // All payload bits in the half that is cut off: must not become infinity.
  CHECK(std::isnan(static_cast<float>(BFloat16(std::bit_cast<float>(0x7f800001u)))));
  CHECK(static_cast<float>(BFloat16(std::numeric_limits<float>::max())) == infinity);
  CHECK(std::signbit(static_cast<float>(BFloat16(-0.0f))));
  CHECK(static_cast<float>(Float16(65504.0f)) == 65504.0f);
  CHECK(static_cast<float>(Float16(65520.0f)) == infinity);  // halfway to 65536
  CHECK(static_cast<float>(Float16(65519.0f)) == 65504.0f);
  CHECK(static_cast<float>(Float16(0x1p-24f)) == 0x1p-24f);  // smallest subnormal
  CHECK(static_cast<float>(Float16(0x1p-25f)) == 0.0f);      // tie to even
  CHECK(std::isnan(static_cast<float>(Float16(nan))));
}

TEST_CASE("dispatch_floating passes the host type and refuses integers by name") {
  const auto bytes = [](DType dtype) {
    return dispatch_floating(dtype, "sum",
                             [](auto tag) { return sizeof(typename decltype(tag)::type); });
  };
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    CHECK(bytes(dtype) == size_of(dtype));
  }
  CHECK(error_of([&] { bytes(DType::kI64); }) == "[sum] dtype: expected a floating type, got i64");
}

}  // namespace
}  // namespace fsdp
