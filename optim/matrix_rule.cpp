// Gathers of one matrix.
#include "optim/matrix_rule.h"

#include "core/shard_args.h"

namespace fsdp::optim {

Tensor MatrixUpdate::gather(const Tensor& values) const {
  FSDP_CHECK(values.numel() == piece.master.numel(),
             "[optimizer] {}: gather: expected the {} elements of a piece, got {}",
             parameter.name(), piece.master.numel(), values.numel());
  Backend& backend = values.backend();
  Stream& stream = backend.compute_stream();
  Tensor whole =
      Tensor::empty(backend, parameter.shape(), values.dtype(), MemoryCategory::kCommunication);
  const Tensor mine = piece_of(whole);
  backend.copy(stream, mine.data(), values.data(), values.bytes());
  int64_t begin = 0;
  for (size_t rank = 0; group && rank < counts.size(); ++rank) {
    if (counts[rank] > 0) {
      group->broadcast(stream, whole.slice(begin, Shape{counts[rank]}), static_cast<int>(rank));
    }
    begin += counts[rank];
  }
  return whole;
}

Tensor MatrixUpdate::piece_of(const Tensor& whole) const {
  return whole.slice(first, Shape{piece.master.numel()});
}

}  // namespace fsdp::optim
