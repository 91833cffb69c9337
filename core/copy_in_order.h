// A copy between two backends, in the order of both: what a value that one computes and the other
// uses takes. Not here: copies that streams of their own make beside the computation (comm/fsdp).
#pragma once

#include "core/tensor.h"

namespace fsdp {

struct TensorCopy {
  const Tensor& from;
  const Tensor& to;
};
// to = from, on the compute stream of `backend`. Where one of them belongs to another backend, the
// copy comes after what that backend's compute stream has been given, and before what comes next.
// Of several copies those of one side belong to one backend. From a file, or into it, values go
// through the host, a stretch at a time, and the call waits.
void copy_in_order(Backend& backend, const std::vector<TensorCopy>& copies);
inline void copy_in_order(Backend& backend, const Tensor& from, const Tensor& to) {
  copy_in_order(backend, {{from, to}});
}

}  // namespace fsdp
