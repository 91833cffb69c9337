// Heads of one layout into another: new keys and values into a cache.
#include <cstring>

#include "core/layer_args.h"
#include "kernels/cpu/cpu_backend.h"

namespace fsdp::cpu {
namespace {

constexpr int64_t kTokenGrain = 16;

// A HeadView in bytes: head h of token t of sample b is at
// data + (b * length + t) * token + h * head.
struct HeadBytes {
  std::byte* data;
  int64_t length, token, head;

  explicit HeadBytes(const HeadView& view)
      : data(static_cast<std::byte*>(view.tensor->data()) + view.offset * element(view)),
        length(view.tensor->shape()[1]),
        token(view.tensor->shape()[2] * element(view)),
        head(view.head_stride * element(view)) {}

  static int64_t element(const HeadView& view) {
    return static_cast<int64_t>(size_of(view.tensor->dtype()));
  }
};

}  // namespace

template <>
void CpuBackend::compute(Stream& stream, const CopyHeadsArgs& args) {
  const HeadView& from = args.from;
  const HeadBytes source(from), target(args.to);
  const int64_t tokens = from.tensor->shape()[0] * source.length, heads = from.heads,
                first = args.first;
  const int64_t bytes = from.head_dim * HeadBytes::element(from);
  enqueue(stream, "copy_heads", 0, [=](Worker& worker) {
    worker.team.parallel_for(tokens, kTokenGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i / source.length * target.length + first + i % source.length;
        for (int64_t h = 0; h < heads; ++h) {
          std::memcpy(target.data + row * target.token + h * target.head,
                      source.data + i * source.token + h * source.head, static_cast<size_t>(bytes));
        }
      }
    });
  });
}

}  // namespace fsdp::cpu
