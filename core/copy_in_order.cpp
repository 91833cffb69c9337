// Contract: core/copy_in_order.h.
#include "core/copy_in_order.h"

#include <algorithm>
#include <vector>

namespace fsdp {
namespace {

constexpr int64_t kStretch = int64_t{1} << 20;  // elements that are on the host at a time

void copy_through_host(const Tensor& from, const Tensor& to) {
  std::vector<std::byte> host;
  for (int64_t first = 0; first < to.numel(); first += kStretch) {
    const Shape part = {std::min(kStretch, to.numel() - first)};
    const Tensor out = to.slice(first, part);
    host.resize(out.bytes());
    from.slice(first, part).read(host.data());
    out.write(host.data());
  }
}

}  // namespace

void copy_in_order(Backend& backend, const std::vector<TensorCopy>& copies) {
  Backend &from = copies.front().from.backend(), &to = copies.front().to.backend();
  const bool by_the_host = !from.computes() || !to.computes();
  if (by_the_host && to.holds_values()) {
    for (const TensorCopy& copy : copies) copy_through_host(copy.from, copy.to);
    return;
  }
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
