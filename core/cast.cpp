// Contract: core/cast.h.
#include "core/cast.h"

#include "core/shard_args.h"

namespace fsdp {

Tensor cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const auto cast_to = [](const Tensor& from, DType to) {
    Backend& backend = from.backend();
    Tensor y = Tensor::empty(backend, from.shape(), to);
    backend.run(backend.compute_stream(), CastArgs{from, y});
    return y;
  };
  Tensor y = cast_to(x, dtype);
  if (Tape* tape = tape_of({&x})) {
    tape->record("cast", {&x}, {&y}, [cast_to, back = x.dtype()](std::vector<Tensor>& gradients) {
      if (!gradients[0].defined()) return std::vector<Tensor>{Tensor()};
      return std::vector<Tensor>{cast_to(gradients[0], back)};
    });
  }
  return y;
}

}  // namespace fsdp
