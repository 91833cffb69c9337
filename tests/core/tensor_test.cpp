// Tensors: views and slices, transfers to and from the host in every dtype, checks.
#include "core/tensor.h"

#include <doctest/doctest.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"

namespace fsdp {
namespace {

using test::error_of;

TEST_CASE("values make the round trip in every dtype") {
  cpu::CpuBackend backend;
  const std::vector<double> values = {-3, 0, 0.5, 1, 1e-3, 250};
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
    CAPTURE(name_of(dtype));
    const Tensor x = test::make_tensor(backend, Shape{2, 3}, dtype, values);
    CHECK(x.dtype() == dtype);
    CHECK(x.bytes() == 6 * size_of(dtype));
    CHECK(x.to_doubles() == test::rounded(values, dtype));
  }
  const Tensor i = Tensor::from_host(backend, Shape{3}, std::vector<int32_t>{-1, 0, 7});
  CHECK(i.to_doubles() == std::vector<double>{-1, 0, 7});
  const Tensor l = Tensor::from_host(backend, Shape{1}, std::vector<int64_t>{int64_t{1} << 40});
  CHECK(l.item() == 0x1p40);
  CHECK(l.to_host<int64_t>() == std::vector<int64_t>{int64_t{1} << 40});
}

TEST_CASE("views and slices share the elements") {
  cpu::CpuBackend backend;
  const Tensor x = Tensor::from_host(backend, Shape{2, 3}, std::vector<float>{0, 1, 2, 3, 4, 5});
  const Tensor row = x.slice(3, Shape{3});
  CHECK(row.byte_offset() == 12);
  CHECK(row.storage() == x.storage());
  CHECK(row.to_host<float>() == std::vector<float>{3, 4, 5});
  CHECK(row.slice(1, Shape{}).item() == 4);
  const std::vector<float> nine = {9, 9, 9};
  row.write(nine.data());
  CHECK(x.view(Shape{3, 2}).to_host<float>() == std::vector<float>{0, 1, 2, 9, 9, 9});
  CHECK(x.data_as<float>() + 3 == row.data());
}

TEST_CASE("zeros are zeros, and empty tensors need nothing") {
  cpu::CpuBackend backend;
  CHECK(Tensor::zeros(backend, Shape{5}, DType::kBF16).to_doubles() == std::vector<double>(5, 0.0));
  const Tensor none = Tensor::zeros(backend, Shape{0, 7}, DType::kF32);
  CHECK(none.defined());
  CHECK(none.to_doubles().empty());
  CHECK(backend.ledger().usage().total_current == 0);
  CHECK_FALSE(Tensor().defined());
}

TEST_CASE("a tensor has no graph unless an op recorded it") {
  cpu::CpuBackend backend;
  const Tensor x = Tensor::zeros(backend, Shape{2}, DType::kF32);
  CHECK_FALSE(x.requires_grad());
  CHECK_FALSE(x.view(Shape{1, 2}).requires_grad());
}

TEST_CASE("wrong views, slices and reads are refused with both sides named") {
  cpu::CpuBackend backend;
  const Tensor x = Tensor::zeros(backend, Shape{2, 3}, DType::kF32);
  CHECK(error_of([&] { x.view(Shape{4}); }) ==
        "[view] shape: expected 6 elements of (2, 3), got (4)");
  CHECK(error_of([&] { x.slice(4, Shape{3}); }) ==
        "[slice] range: expected within 6 elements, got [4, 7)");
  CHECK(error_of([&] { x.slice(-1, Shape{1}); }) != "");
  CHECK(error_of([&] { x.item(); }) == "[item] shape: expected one element, got (2, 3)");
  CHECK(error_of([&] { x.to_host<double>(); }) == "[to_host] dtype: tensor is f32");
  CHECK(error_of([&] { Tensor::from_host(backend, Shape{3}, std::vector<float>{1}); }) ==
        "[from_host] values: expected 3 for (3), got 1");
}

}  // namespace
}  // namespace fsdp
