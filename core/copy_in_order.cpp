// Contract: core/copy_in_order.h.
#include "core/copy_in_order.h"

namespace fsdp {

void copy_in_order(Backend& backend, const std::vector<TensorCopy>& copies) {
  Backend &from = copies.front().from.backend(), &to = copies.front().to.backend();
  const auto meet = [](Backend& a, Backend& b) {
    if (&a != &b) a.wait(a.compute_stream(), b.record(b.compute_stream()));
  };
  meet(backend, from);
  meet(backend, to);
  for (const TensorCopy& copy : copies) {
    backend.copy(backend.compute_stream(), copy.to.data(), copy.from.data(), copy.to.bytes());
  }
  meet(from, backend);
  meet(to, backend);
}

}  // namespace fsdp
