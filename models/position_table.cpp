// Rounding and upload of position tables.
#include "models/position_table.h"

namespace fsdp::models {

Tensor position_table(Backend& backend, const Shape& shape, std::vector<double> values, DType dtype,
                      std::optional<DType> buffer_dtype) {
  if (buffer_dtype) {
    dispatch_floating(*buffer_dtype, "buffer_dtype", [&]<typename T>(TypeTag<T>) {
      for (double& value : values) {
        value = static_cast<double>(T(static_cast<Accumulate<T>>(value)));
      }
    });
  }
  constexpr MemoryCategory kCategory = MemoryCategory::kWorkspace;
  if (dtype == DType::kF64) return Tensor::from_host(backend, shape, values, kCategory);
  return Tensor::from_host(backend, shape, std::vector<float>(values.begin(), values.end()),
                           kCategory);
}

}  // namespace fsdp::models
