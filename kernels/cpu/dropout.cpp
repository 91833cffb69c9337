// Dropout of activations: the mask is drawn again in backward, never stored.
#include "kernels/cpu/dropout.h"

#include "core/layer_args.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/wide_loop.h"

namespace fsdp::cpu {
namespace {

constexpr int64_t kRun = 1024;    // elements whose words are drawn together
constexpr int64_t kGrain = 8192;  // elements that one thread takes at a time, a multiple of kRun

// Elements [begin, end) of one sample; begin is a multiple of 4.
template <typename T>
void drop_run(CpuDropoutMask mask, uint64_t sample, const T* x, T* y, int64_t begin, int64_t end) {
  uint32_t words[kRun];
  const auto scale = static_cast<Accumulate<T>>(mask.scale);
  for (int64_t first = begin; first < end; first += kRun) {
    const int64_t n = std::min(kRun, end - first);
    dropout_words(mask, sample, static_cast<uint64_t>(first) / 4, (n + 3) / 4, words);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const auto kept = Accumulate<T>(x[first + i]) * scale;
      y[first + i] = T(mask.keeps(words[i]) ? kept : 0);
    }
  }
}

}  // namespace

template <>
void CpuBackend::compute(Stream& stream, const DropoutArgs& args) {
  const int64_t samples = args.draw.samples->numel();
  const int64_t size = samples ? args.x.numel() / samples : 0;  // of a sample
  const int64_t pieces = (size + kGrain - 1) / kGrain;
  dispatch_floating(args.x.dtype(), "dropout", [&]<typename T>(TypeTag<T>) {
    enqueue(stream, "dropout", 0,
            [=, mask = CpuDropoutMask(args.draw), ids = args.draw.samples->data_as<int64_t>(),
             x = args.x.data_as<T>(), y = args.y.data_as<T>()](Worker& worker) {
              worker.team.run(samples * pieces, [&](int64_t task, int) {
                const int64_t sample = task / pieces, begin = task % pieces * kGrain;
                const T* from = x + sample * size;
                T* to = y + sample * size;
                wide_loop([&](auto) {
                  drop_run(mask, static_cast<uint64_t>(ids[sample]), from, to, begin,
                           std::min(size, begin + kGrain));
                });
              });
            });
  });
}

}  // namespace fsdp::cpu
