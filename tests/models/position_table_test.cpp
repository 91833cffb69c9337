// Position tables: the dtype that kernels read, and the one that values are rounded to before.
// Requirements: S1.14.
#include "models/position_table.h"

#include <doctest/doctest.h>

#include "kernels/cpu/cpu_backend.h"

namespace fsdp::models {
namespace {

TEST_CASE("position table: rounded to the buffer dtype, kept in the other") {
  cpu::CpuBackend backend;
  const std::vector<double> values = {1.0 / 3, -0.1, 70000, 0};
  const auto table = [&](DType dtype, std::optional<DType> buffer) {
    const Tensor t = position_table(backend, Shape{2, 2}, values, dtype, buffer);
    CHECK(t.dtype() == dtype);
    CHECK(t.shape() == Shape{2, 2});
    return t.to_doubles();
  };
  const auto rounded = [&](auto round) {
    std::vector<double> out;
    for (const double v : values) out.push_back(double(round(static_cast<float>(v))));
    return out;
  };
  const auto f32 = [](float v) { return v; };
  CHECK(table(DType::kF64, {}) == values);
  CHECK(table(DType::kF64, DType::kF32) == rounded(f32));
  CHECK(table(DType::kF32, {}) == rounded(f32));
  CHECK(table(DType::kF32, DType::kBF16) == rounded([](float v) { return BFloat16(v); }));
  const double f16_third = table(DType::kF32, DType::kF16)[0];
  CHECK(f16_third == double(Float16(1.0f / 3)));
  CHECK_THROWS_AS(table(DType::kF32, DType::kI32), Error);
}

}  // namespace
}  // namespace fsdp::models
