// Timing by the trace, in batches, because the host must stay ahead of the device.
#include "tools/bench/kernel_bench.h"

#include <algorithm>
#include <latch>
#include <numeric>

namespace fsdp::tools {
namespace {

constexpr size_t kMostCalls = 2000;
constexpr size_t kBatch = 16;  // calls between two waits of the host
constexpr size_t kMostSets = 1024;
constexpr std::string_view kHold = "hold";

size_t bytes_in_use(Backend& backend) {
  const MemoryUsage usage = backend.ledger().usage();
  return std::accumulate(usage.current.begin(), usage.current.end(), size_t{0});
}

// As many sets as exceed the cache twice. See [Note: inputs rotate].
std::vector<meta::KernelRun> prepare_sets(KernelInputs& inputs, const KernelCase& line,
                                          size_t cache_bytes) {
  const auto prepare = [&] {
    KernelInputSet set(inputs);
    return line.call.prepare(set);
  };
  std::vector<meta::KernelRun> sets = {prepare()};  // and what all are copied from
  const size_t before = bytes_in_use(inputs.backend());
  sets.push_back(prepare());
  const size_t each = std::max<size_t>(1, bytes_in_use(inputs.backend()) - before);
  const bool rotates = line.call.cost.bytes > 0;  // a few scalars never leave the cache
  const size_t count = rotates ? std::min(2 * cache_bytes / each + 1, kMostSets) : 2;
  while (sets.size() < count) sets.push_back(prepare());
  return sets;
}

// Holds the stream until the calls are enqueued: a short kernel must not wait for the host that
// comes with it.
class Hold {
 public:
  Hold(Backend& backend, Stream& stream) {
    backend.host_task(stream, kHold, 0, [enqueued = enqueued_] { enqueued->wait(); });
  }
  ~Hold() { enqueued_->count_down(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  std::shared_ptr<std::latch> enqueued_ = std::make_shared<std::latch>(1);
};

class KernelTimer {
 public:
  KernelTimer(Backend& backend, std::vector<meta::KernelRun> sets)
      : backend_(backend), sets_(std::move(sets)) {}

  // What comes first: libraries make their code and choose, pages get their memory.
  void warm_up() {
    for (const meta::KernelRun& run : sets_) run(backend_, backend_.compute_stream());
    backend_.synchronize(backend_.compute_stream());
  }
  // Seconds of each of `calls` calls.
  std::vector<double> time(size_t calls) {
    Trace trace;
    Stream& stream = backend_.compute_stream();
    backend_.set_trace(&trace);
    {
      const Hold hold(backend_, stream);
      for (size_t i = 0; i < calls; ++i) sets_[next_++ % sets_.size()](backend_, stream);
    }
    backend_.set_trace(nullptr);
    backend_.synchronize(stream);
    std::vector<TraceEvent> events = trace.events();
    std::erase_if(events, [](const TraceEvent& event) { return event.name == kHold; });
    return durations(events, calls);
  }

 private:
  // A call may be several operations, always as many.
  static std::vector<double> durations(const std::vector<TraceEvent>& events, size_t calls) {
    FSDP_CHECK(!events.empty() && events.size() % calls == 0,
               "[bench kernels] trace: expected a multiple of {} events, got {}", calls,
               events.size());
    const size_t each = events.size() / calls;
    std::vector<double> seconds;
    for (size_t i = 0; i < calls; ++i) {
      int64_t ns = 0;
      for (size_t j = i * each; j < (i + 1) * each; ++j) {
        ns += events[j].end_ns - events[j].begin_ns;
      }
      seconds.push_back(std::max(1e-9, static_cast<double>(ns) * 1e-9));  // the clock's step
    }
    return seconds;
  }

  Backend& backend_;
  std::vector<meta::KernelRun> sets_;
  size_t next_ = 0;
};

}  // namespace

KernelResult time_kernel(KernelInputs& inputs, const KernelCase& line, const KernelTiming& timing) {
  std::vector<meta::KernelRun> sets = prepare_sets(inputs, line, timing.cache_bytes);
  KernelResult result = {line.name(), line.shape, line.call.cost, line.bar, sets.size(), 0, {}};
  KernelTimer timer(inputs.backend(), std::move(sets));
  timer.warm_up();
  std::vector<double> seconds;
  double sum = 0;
  const auto least = static_cast<size_t>(timing.least_calls);
  const auto enough = [&](size_t calls) {
    if (calls < std::min<size_t>(least, 2)) return false;
    if (sum >= timing.most_seconds) return true;
    return calls >= least && (sum >= timing.seconds || calls >= kMostCalls);
  };
  while (!enough(seconds.size())) {
    const bool is_short = sum * kBatch < timing.seconds * static_cast<double>(seconds.size());
    for (const double s : timer.time(is_short ? kBatch : 1)) {
      seconds.push_back(s);
      sum += s;
    }
  }
  result.calls = seconds.size();
  result.seconds = spread_of(seconds);
  return result;
}

// ---------------------------------------------------------------------------- Rates of the device

namespace {

double copy_rate(KernelInputs& inputs, const KernelTiming& timing) {
  constexpr size_t kLeast = size_t{16} << 20, kMost = size_t{512} << 20;  // bytes
  const size_t bytes = std::clamp(timing.cache_bytes, kLeast, kMost);
  const KernelCase line = copy_line(static_cast<int64_t>(bytes / 4), DType::kF32);
  return time_kernel(inputs, line, timing).bytes_per_s();
}

// Larger products reach more, until they take too long to be tried. Their operands may be in a
// cache.
double product_rate(KernelInputs& inputs, DType dtype, KernelTiming timing) {
  timing.cache_bytes = 0;
  constexpr double kLongest = 0.05;  // seconds
  double rate = 0;
  for (int64_t n = 512; n <= 8192; n *= 2) {
    const MatmulExtents square = {.m = n, .n = n, .k = n, .operand = dtype, .result = dtype};
    const KernelCase line = product_line(square);
    if (rate > 0 && static_cast<double>(line.call.cost.flops) / rate > kLongest) break;
    rate = std::max(rate, time_kernel(inputs, line, timing).flops_per_s());
  }
  return rate;
}

}  // namespace

DeviceRates measure_rates(KernelInputs& inputs, DType dtype, const KernelTiming& timing) {
  return {copy_rate(inputs, timing), product_rate(inputs, dtype, timing)};
}

KernelBench bench_kernels(Backend& backend, const std::vector<KernelCase>& table, DType dtype,
                          const KernelTiming& timing) {
  KernelInputs inputs(backend);
  const DeviceRates before = measure_rates(inputs, dtype, timing);
  KernelBench bench;
  for (const KernelCase& line : table) {
    bench.kernels.push_back(time_kernel(inputs, line, timing));
  }
  const DeviceRates after = measure_rates(inputs, dtype, timing);
  bench.rates = {std::max(before.copy_bytes_per_s, after.copy_bytes_per_s),
                 std::max(before.product_flops_per_s, after.product_flops_per_s)};
  return bench;
}

}  // namespace fsdp::tools
