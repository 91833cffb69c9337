// Device memory of one operation, in the order of its stream: given back, without waiting, when the
// object is dropped. With values: tables that a kernel reads.
#pragma once

#include <vector>

#include "core/tensor.h"
#include "kernels/cuda/op.h"
#include "kernels/cuda/stream.h"

namespace fsdp::cuda {

template <typename T>
class Workspace {
 public:
  Workspace(const Op& op, int64_t count)
      : storage_(op.backend(), static_cast<size_t>(count) * sizeof(T), MemoryCategory::kWorkspace,
                 &op.cuda_stream()) {}
  Workspace(const Op& op, const std::vector<T>& values)
      : Workspace(op, static_cast<int64_t>(values.size())) {
    op.backend().copy_from_host(op.cuda_stream(), data(), values.data(), storage_.bytes());
  }
  T* data() const { return reinterpret_cast<T*>(storage_.data()); }

 private:
  Storage storage_;
};

}  // namespace fsdp::cuda
