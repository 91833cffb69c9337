// The parts of the table put together, and the inputs of its lines.
#include "tools/bench/kernel_case.h"

#include <algorithm>

#include "core/shard_args.h"

namespace fsdp::tools {

Tensor KernelInputs::empty(Shape shape, DType dtype) const {
  return Tensor::empty(backend_, shape, dtype, MemoryCategory::kWorkspace);
}

Tensor KernelInputs::normal(Shape shape, DType dtype) {
  Stream& stream = backend_.compute_stream();
  Tensor& block = blocks_[dtype];
  if (!block.defined()) {
    block = empty(Shape{kBlock}, dtype);
    backend_.run(stream, FillNormalArgs{block, 0, 1, /*seed=*/0, hash_name("bench kernels"), 0});
  }
  Tensor out = empty(shape, dtype);
  auto* data = static_cast<std::byte*>(out.data());
  for (size_t done = 0; done < out.bytes(); done += block.bytes()) {
    backend_.copy(stream, data + done, block.data(), std::min(block.bytes(), out.bytes() - done));
  }
  return out;
}

Tensor KernelInputs::constant(Shape shape, DType dtype, double value) const {
  Tensor out = empty(shape, dtype);
  backend_.run(backend_.compute_stream(), FillNormalArgs{out, value, 0, 0, 0, 0});
  return out;
}

Tensor KernelInputs::indices(Shape shape, int64_t below) const {
  const uint64_t stream = hash_name("bench indices");
  std::vector<int32_t> values;
  for (int64_t i = 0; i < shape.numel(); ++i) {
    const double at = uniform_at(/*seed=*/0, stream, static_cast<uint64_t>(i));
    values.push_back(static_cast<int32_t>(at * static_cast<double>(below)));
  }
  return Tensor::from_host<int32_t>(backend_, shape, values, MemoryCategory::kWorkspace);
}

Tensor KernelInputs::of(const meta::TensorForm& form) {
  using Content = TensorRole::Content;
  const auto& [shape, dtype, address, role] = form;
  if (role.content == Content::kIndices) return indices(shape, role.below);
  const double value = role.content == Content::kOnes ? 1 : 0;
  if (is_floating(dtype)) {
    if (role.content != Content::kNumbers) return constant(shape, dtype, value);
    return role.use == TensorRole::Use::kOut ? empty(shape, dtype) : normal(shape, dtype);
  }
  Tensor out = empty(shape, dtype);
  const std::vector<int64_t> wide(static_cast<size_t>(shape.numel()), static_cast<int64_t>(value));
  const std::vector<int32_t> narrow(wide.begin(), wide.end());
  out.write(dtype == DType::kI64 ? static_cast<const void*>(wide.data()) : narrow.data());
  return out;
}

Tensor KernelInputSet::make(const meta::TensorForm& form) {
  Tensor& tensor = by_address_[form.address];
  if (!tensor.defined()) tensor = inputs_.of(form);
  return {tensor.storage(), tensor.byte_offset(), form.shape, form.dtype};
}

std::vector<KernelCase> kernel_table(const KernelExtents& extents, const std::string& filter) {
  std::vector<KernelCase> table;
  add_products(extents, table);
  add_attention(extents, table);
  add_passes(extents, table);
  add_shard_kernels(extents, table);
  std::erase_if(
      table, [&](const KernelCase& line) { return line.name().find(filter) == std::string::npos; });
  return table;
}

}  // namespace fsdp::tools
