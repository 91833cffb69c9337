// The overflow test at the edges of its range. The rule of the scale is tested where its published
// sequences are: tests/optim/loss_scaler_test.cpp.
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "core/shard_args.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/tensors.h"

namespace fsdp {
namespace {

int32_t flag_after(cpu::CpuBackend& backend, const Tensor& x, double limit, int32_t before = 0) {
  Tensor flag = Tensor::from_host<int32_t>(backend, {}, {before});
  backend.run(backend.compute_stream(), OverflowArgs{.x = x, .limit = limit, .flag = flag});
  return static_cast<int32_t>(flag.item());
}

TEST_CASE("find_overflow: infinities, NaN and values beyond the limit, wherever they are") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double bad[] = {kInfinity, -kInfinity, std::nan(""), 65505, -70000};
  for (const int threads : {1, 3}) {
    cpu::CpuBackend backend({.threads = threads});
    for (const DType dtype : {DType::kF32, DType::kF64}) {
      for (const int64_t n : {1, 17, 100003}) {
        std::vector<double> values(static_cast<size_t>(n), 65504);
        CHECK(flag_after(backend, test::make_tensor(backend, {n}, dtype, values), 65504) == 0);
        for (const double value : bad) {
          for (const int64_t where : {int64_t{0}, n / 2, n - 1}) {
            std::vector<double> spoilt = values;
            spoilt[static_cast<size_t>(where)] = value;
            CHECK(flag_after(backend, test::make_tensor(backend, {n}, dtype, spoilt), 65504) == 1);
          }
        }
      }
    }
  }
}

TEST_CASE(
    "find_overflow: the largest numbers of every dtype are in range, a flag is never cleared") {
  cpu::CpuBackend backend;
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    const double largest = largest_finite(dtype);
    const Tensor x = test::make_tensor(backend, {2}, dtype, {largest, -largest});
    CHECK(flag_after(backend, x, largest_finite(DType::kF64)) == 0);
    CHECK(flag_after(backend, x, largest) == 0);
    CHECK(flag_after(backend, x, largest, 1) == 1);
    CHECK(flag_after(backend, x, largest / 2) == 1);
  }
  const Tensor x = test::make_tensor(backend, {1}, DType::kF16, {std::nan("")});
  CHECK(flag_after(backend, x, largest_finite(DType::kF64)) == 1);
}

}  // namespace
}  // namespace fsdp
