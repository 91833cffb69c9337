// Rates by a GPU's name.
// Requirements: S2.6.
#include "tools/predict/nominal_gpus.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

TEST_CASE("nominal GPUs: a name, or the names that there are") {
  CHECK(nominal_gpu("L40").gib == doctest::Approx(44.40));
  CHECK(test::error_of([] { nominal_rates("A100"); }) ==
        "gpu: expected one of V100-16, V100-32, L40, A100-40, A100-80, H100, H200, B200, got "
        "\"A100\"");
}

// A product of 2^40 multiplications and additions, and a pass over 1 GB.
TEST_CASE("nominal GPUs: kernels take what the data sheet's peaks leave of them") {
  const auto milliseconds = [](const char* gpu, const Cost& cost, DType dtype) {
    CallRates rates(nominal_rates(gpu));
    return 1e3 * rates.kernel_seconds(
                     {.kernel = "k", .shape = "1", .dtype = dtype, .cost = cost, .product = {}});
  };
  const Cost product = {.flops = int64_t{1} << 40, .bytes = 0};
  const Cost pass = {.flops = 0, .bytes = 1'000'000'000};
  CHECK(milliseconds("A100-80", product, DType::kBF16) == doctest::Approx(5.8736).epsilon(1e-4));
  CHECK(milliseconds("A100-80", product, DType::kF32) == doctest::Approx(93.976).epsilon(1e-4));
  CHECK(milliseconds("H200", pass, DType::kF32) == doctest::Approx(0.26042).epsilon(1e-4));
  CHECK(milliseconds("H100", pass, DType::kF32) == doctest::Approx(0.37313).epsilon(1e-4));
  CHECK(nominal_rates() == nominal_rates("A100-80"));
}

}  // namespace
}  // namespace fsdp::tools
