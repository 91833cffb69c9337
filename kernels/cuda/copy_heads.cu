// Rows of heads into a longer sequence: how keys and values join a cache.
#include "kernels/cuda/attention_problem.h"

namespace fsdp::cuda {
namespace {

// mapping: a thread per unit: 16 bytes where rows are aligned, else an element
// bytes:   those of the rows, read and written
// in f32:  nothing
// source:  core/kernel_args.h
template <typename T, typename Unit>
struct CopyUnits {
  HeadRows<T> from, to;
  int64_t first, heads, units;  // units of a head

  template <int>
  __device__ void at(int64_t i) const {
    constexpr int64_t kElements = sizeof(Unit) / sizeof(T);
    const int64_t column = i % units * kElements, head = i / units % heads;
    const int64_t token = i / (units * heads);
    const int64_t b = token / from.length, t = token % from.length;
    const auto h = static_cast<int>(head), sample = static_cast<int>(b);
    *reinterpret_cast<Unit*>(to.row(sample, h, static_cast<int>(first + t)) + column) =
        *reinterpret_cast<const Unit*>(from.row(sample, h, static_cast<int>(t)) + column);
  }
};

}  // namespace

template <>
void CudaBackend::compute(Stream& stream, const CopyHeadsArgs& args) {
  const HeadView &from = args.from, &to = args.to;
  const Op op(*this, stream, args);
  dispatch_device(from.tensor->dtype(), op.name(), [&]<typename T>(TypeTag<T>) {
    const HeadRows<T> source(from), target(to);
    const int64_t rows = from.tensor->shape()[0] * from.tensor->shape()[1] * from.heads;
    const auto copy = [&]<typename Unit>(TypeTag<Unit>) {
      const int64_t units = from.head_dim * int64_t{sizeof(T)} / int64_t{sizeof(Unit)};
      for_each_element<1>(op, rows * units,
                          CopyUnits<T, Unit>{source, target, args.first, from.heads, units}, {});
    };
    source.aligned&& target.aligned ? copy(TypeTag<uint4>{}) : copy(TypeTag<T>{});
  });
}

}  // namespace fsdp::cuda
