// Tensor: views, and transfers between host values and the backend.
#include "core/tensor.h"

#include "core/autograd.h"

namespace fsdp {

Tensor Tensor::empty(Backend& backend, Shape shape, DType dtype, MemoryCategory category) {
  const size_t bytes = static_cast<size_t>(shape.numel()) * size_of(dtype);
  return Tensor(std::make_shared<Storage>(backend, bytes, category), 0, shape, dtype);
}

Tensor Tensor::zeros(Backend& backend, Shape shape, DType dtype, MemoryCategory category) {
  Tensor out = empty(backend, shape, dtype, category);
  if (out.bytes() > 0) backend.fill_zero(backend.compute_stream(), out.data(), out.bytes());
  return out;
}

Tensor Tensor::view(Shape shape) const {
  FSDP_CHECK(shape.numel() == numel(), "[view] shape: expected {} elements of {}, got {}", numel(),
             shape_.str(), shape.str());
  return Tensor(storage_, offset_, shape, dtype_);
}

Tensor Tensor::slice(int64_t first_element, Shape shape) const {
  FSDP_CHECK(first_element >= 0 && first_element + shape.numel() <= numel(),
             "[slice] range: expected within {} elements, got [{}, {})", numel(), first_element,
             first_element + shape.numel());
  const int64_t step = static_cast<int64_t>(size_of(dtype_));
  return Tensor(storage_, offset_ + first_element * step, shape, dtype_);
}

void Tensor::write(const void* host_values) const {
  if (bytes() == 0) return;
  backend().copy_from_host(backend().compute_stream(), data(), host_values, bytes());
}

void Tensor::read(void* host_values) const {
  if (bytes() == 0) return;
  backend().copy_to_host(backend().compute_stream(), host_values, data(), bytes());
}

std::vector<double> Tensor::to_doubles() const {
  std::vector<std::byte> raw(bytes());
  read(raw.data());
  std::vector<double> out(static_cast<size_t>(numel()));
  const auto convert = [&](auto zero) {
    using T = decltype(zero);
    const T* values = reinterpret_cast<const T*>(raw.data());
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<double>(values[i]);
  };
  if (dtype_ == DType::kI32) {
    convert(int32_t{});
  } else if (dtype_ == DType::kI64) {
    convert(int64_t{});
  } else {
    dispatch_floating(dtype_, "to_doubles",
                      [&](auto tag) { convert(typename decltype(tag)::type{}); });
  }
  return out;
}

double Tensor::item() const {
  FSDP_CHECK(numel() == 1, "[item] shape: expected one element, got {}", shape_.str());
  return to_doubles()[0];
}

bool Tensor::requires_grad() const { return autograd_ != nullptr; }

Tensor Tensor::detached() const { return Tensor(storage_, offset_, shape_, dtype_); }

}  // namespace fsdp
