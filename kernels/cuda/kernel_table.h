// A table that a kernel reads, made by the host for one launch. A small one travels within the
// launch's parameters: no copy to the device, nothing to wait for. Kernels take what contains one
// as `const __grid_constant__`, so that it is read where the parameters lie.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/cuda/workspace.h"

namespace fsdp::cuda {

template <typename T>
struct KernelTable {
  static constexpr size_t kInline = 2048 / sizeof(T);  // parameters may take 4 KiB
  T inside[kInline];
  const T* outside;  // null: all are inside
  int64_t count;

  __device__ __forceinline__ const T& operator[](int64_t i) const {
    return outside ? outside[i] : inside[i];
  }
  // The last element whose `begin` is at or before x: they are in order, and the first one's is.
  // One that is empty begins where the next does and so is not found.
  __device__ __forceinline__ int64_t last_at_or_before(int64_t T::*begin, int64_t x) const {
    int64_t low = 0, high = count;
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      ((*this)[middle].*begin <= x ? low : high) = middle;
    }
    return low;
  }
};

// Lives until the last launch that uses the table.
template <typename T>
class TableOwner {
 public:
  TableOwner(const Op& op, const std::vector<T>& values) {
    table_.count = static_cast<int64_t>(values.size());
    if (values.size() <= KernelTable<T>::kInline) {
      std::copy(values.begin(), values.end(), table_.inside);
    } else {
      table_.outside = large_.emplace(op, values).data();
    }
  }
  const KernelTable<T>& table() const { return table_; }

 private:
  KernelTable<T> table_ = {};
  std::optional<Workspace<T>> large_;
};

}  // namespace fsdp::cuda
