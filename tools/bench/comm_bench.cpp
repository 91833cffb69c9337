// A buffer that every rank fills with numbers of its own, so that each rank knows what the others
// must have sent. Small whole numbers: their sums are exact, in whatever order they are taken.
#include "tools/bench/comm_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "comm/exchange.h"
#include "core/rng.h"

namespace fsdp::tools {
namespace {

using comm::Collective;
using comm::ReduceOp;

// Values repeat after a prime: a slot that lands in the place of another one is noticed.
constexpr int64_t kPeriod = 1021;
constexpr int kLargest = 3;
constexpr int64_t kStretch = int64_t{1} << 20;  // elements that the host holds at a time

// What a rank contributes: element i is period[i % kPeriod].
using Period = std::vector<double>;
Period contribution(int rank) {
  Period out;
  for (int64_t i = 0; i < kPeriod; ++i) {
    const double at =
        uniform_at(static_cast<uint64_t>(rank), hash_name("bench comm"), static_cast<uint64_t>(i));
    out.push_back(std::floor(at * (2 * kLargest + 1)) - kLargest);
  }
  return out;
}

double at(const Period& period, int64_t i) { return period[static_cast<size_t>(i % kPeriod)]; }

bool reduces(Collective collective) {
  return collective == Collective::kReduceScatter || collective == Collective::kAllReduce;
}

// Calls f with a value of the host type.
template <typename F>
auto with_host_type(DType dtype, F&& f) {
  if (dtype == DType::kI32) return f(int32_t{});
  if (dtype == DType::kI64) return f(int64_t{});
  return dispatch_floating(dtype, "bench comm",
                           [&](auto tag) { return f(typename decltype(tag)::type{}); });
}

double rounded(double value, DType dtype) {
  return with_host_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    using Wide = std::conditional_t<std::is_integral_v<T>, T, Accumulate<T>>;
    return static_cast<double>(static_cast<T>(static_cast<Wide>(value)));
  });
}

double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 0x1p-52;
    case DType::kF32:
      return 0x1p-23;
    case DType::kF16:
      return 0x1p-10;
    case DType::kBF16:
      return 0x1p-7;
    default:
      return 0;
  }
}

class CollectiveBench {
 public:
  CollectiveBench(comm::Communicator& world, Backend& backend, const CommCase& what)
      : world_(world), backend_(backend), what_(what) {
    what_.bytes = whole_slots(what, world.size());
    slot_ = what_.bytes / (static_cast<int64_t>(size_of(what.dtype)) * world.size());
    const auto bytes = static_cast<size_t>(what_.bytes);
    std::shared_ptr<Storage> storage;
    if (what.registered) {
      memory_ = world.allocate(backend, bytes, MemoryCategory::kCommunication);
      storage = Storage::unbound(backend, bytes, MemoryCategory::kCommunication);
      storage->bind(memory_->data());
    } else {
      storage = std::make_shared<Storage>(backend, bytes, MemoryCategory::kCommunication);
    }
    buffer_ = Tensor(storage, 0, Shape{slot_ * world.size()}, what.dtype);
  }

  CommResult run(const CommTiming& timing) {
    CommResult result = {what_, {}, count_wrong(), world_.size()};
    result.seconds = time(timing);
    return result;
  }

 private:
  void call() {
    Stream& stream = backend_.compute_stream();
    switch (what_.collective) {
      case Collective::kAllGather:
        world_.all_gather(stream, buffer_);
        return;
      case Collective::kReduceScatter:
        world_.reduce_scatter(stream, buffer_, own_slot(), what_.op);
        return;
      case Collective::kAllReduce:
        world_.all_reduce(stream, buffer_, what_.op);
        return;
      case Collective::kBroadcast:
        world_.broadcast(stream, buffer_, root());
        return;
    }
  }

  int root() const { return world_.size() - 1; }
  Tensor own_slot() const { return buffer_.slice(world_.rank() * slot_, Shape{slot_}); }

  // ---- data ----

  void fill() {
    const Period mine = contribution(world_.rank());
    with_host_type(what_.dtype, [&](auto zero) {
      for (int64_t first = 0; first < buffer_.numel(); first += kStretch) {
        const int64_t count = std::min(kStretch, buffer_.numel() - first);
        std::vector<decltype(zero)> values;
        for (int64_t i = first; i < first + count; ++i) {
          values.push_back(static_cast<decltype(zero)>(static_cast<float>(at(mine, i))));
        }
        buffer_.slice(first, Shape{count}).write(values.data());
        backend_.synchronize(backend_.compute_stream());  // before `values` goes
      }
    });
  }

  Period reduction() const {
    Period out = contribution(0);
    for (int rank = 1; rank < world_.size(); ++rank) {
      const Period other = contribution(rank);
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] = what_.op == ReduceOp::kMax ? std::max(out[i], other[i]) : out[i] + other[i];
      }
    }
    for (double& value : out) {
      if (what_.op == ReduceOp::kAverage) value /= world_.size();
      value = rounded(value, what_.dtype);
    }
    return out;
  }

  // A transport may round a quotient otherwise than we do, and sums of so many ranks that the dtype
  // does not hold them; all else is exact.
  double tolerance() const {
    if (!reduces(what_.collective) || what_.op == ReduceOp::kMax) return 0;
    const double largest = kLargest * world_.size(), epsilon = epsilon_of(what_.dtype);
    if (what_.op == ReduceOp::kAverage) return kLargest * epsilon;
    return largest * epsilon <= 2 ? 0 : largest * epsilon;
  }

  int64_t count_wrong() {
    fill();
    world_.barrier();
    call();
    int64_t wrong = 0;
    if (what_.collective == Collective::kAllGather) {
      for (int rank = 0; rank < world_.size(); ++rank) {
        wrong += differing(rank * slot_, slot_, contribution(rank));
      }
    } else if (what_.collective == Collective::kReduceScatter) {
      wrong = differing(world_.rank() * slot_, slot_, reduction());
    } else {
      const bool sent = what_.collective == Collective::kBroadcast;
      wrong = differing(0, buffer_.numel(), sent ? contribution(root()) : reduction());
    }
    return sum_over_ranks(wrong);
  }

  // Of the buffer's elements [first, first + count).
  int64_t differing(int64_t first, int64_t count, const Period& expected) const {
    int64_t wrong = 0;
    for (int64_t done = 0; done < count; done += kStretch) {
      const int64_t part = std::min(kStretch, count - done), begin = first + done;
      const std::vector<double> got = buffer_.slice(begin, Shape{part}).to_doubles();
      for (int64_t i = 0; i < part; ++i) {
        const double difference = std::abs(got[static_cast<size_t>(i)] - at(expected, begin + i));
        wrong += !(difference <= tolerance());  // also when it is no number
      }
    }
    return wrong;
  }

  int64_t sum_over_ranks(int64_t mine) {
    int64_t sum = 0;
    for (const int64_t each : comm::exchange_values(world_, mine)) sum += each;
    return sum;
  }

  // ---- time ----

  Spread time(const CommTiming& timing) {
    backend_.fill_zero(backend_.compute_stream(), buffer_.data(), buffer_.bytes());
    round(timing.calls);  // warm-up
    std::vector<double> seconds;
    for (int64_t i = 0; i < timing.rounds; ++i) seconds.push_back(round(timing.calls));
    return spread_of(seconds);
  }

  // Seconds of a call on the slowest rank.
  double round(int64_t calls) {
    Stream& stream = backend_.compute_stream();
    backend_.synchronize(stream);
    world_.barrier();
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < calls; ++i) call();
    backend_.synchronize(stream);
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    const std::vector<double> all = comm::exchange_values(world_, passed.count());
    return *std::max_element(all.begin(), all.end()) / static_cast<double>(calls);
  }

  comm::Communicator& world_;
  Backend& backend_;
  CommCase what_;
  int64_t slot_ = 0;  // elements
  std::shared_ptr<comm::CommBuffer> memory_;
  Tensor buffer_;
};

}  // namespace

int64_t whole_slots(const CommCase& what, int ranks) {
  const int64_t slots = static_cast<int64_t>(size_of(what.dtype)) * ranks;
  return std::max<int64_t>(1, what.bytes / slots) * slots;
}

double bus_factor(Collective collective, int ranks) {
  const double n = ranks;
  switch (collective) {
    case Collective::kAllReduce:
      return 2 * (n - 1) / n;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
      return (n - 1) / n;
    case Collective::kBroadcast:
      break;
  }
  return 1;
}

double CommResult::busbw() const { return algbw() * bus_factor(what.collective, ranks); }

CommResult bench_collective(comm::Communicator& world, Backend& backend, const CommCase& what,
                            const CommTiming& timing) {
  return CollectiveBench(world, backend, what).run(timing);
}

std::vector<CommResult> bench_collectives(comm::Communicator& world, Backend& backend,
                                          const std::vector<CommCase>& cases,
                                          const CommTiming& timing,
                                          const std::function<void(const CommResult&)>& done) {
  std::vector<CommResult> results;
  for (const CommCase& what : cases) {
    results.push_back(bench_collective(world, backend, what, timing));
    done(results.back());
  }
  return results;
}

double mean_busbw(const std::vector<CommResult>& results) {
  double sum = 0;
  for (const CommResult& result : results) sum += result.busbw();
  return results.empty() ? 0 : sum / static_cast<double>(results.size());
}
namespace {

double bus_bytes(const CommResult& result) {
  return static_cast<double>(result.what.bytes) * bus_factor(result.what.collective, result.ranks);
}

}  // namespace

LinkRate fit_link(const std::vector<CommResult>& results) {
  // Minimises the sum of w (a + b x - t)^2 with w = 1 / t^2.
  double w_sum = 0, x_sum = 0, t_sum = 0, least = 0, most = 0;
  for (const CommResult& result : results) {
    const double t = result.seconds.median, w = 1 / (t * t), x = bus_bytes(result);
    w_sum += w;
    x_sum += w * x;
    t_sum += w * t;
    least = least == 0 ? x : std::min(least, x);
    most = std::max(most, x);
  }
  FSDP_CHECK(most > least, "link: expected collectives of several sizes, got {:.0f} bytes in all",
             most);
  const double x_mean = x_sum / w_sum, t_mean = t_sum / w_sum;
  double covariance = 0, variance = 0;
  for (const CommResult& result : results) {
    const double t = result.seconds.median, w = 1 / (t * t), x = bus_bytes(result) - x_mean;
    covariance += w * x * (t - t_mean);
    variance += w * x * x;
  }
  const double slope = covariance / variance;
  FSDP_CHECK(slope > 0,
             "link: expected larger collectives to take longer; measure larger ones than {:.0f} "
             "bytes",
             most);
  const double latency = t_mean - slope * x_mean;
  // Through the origin instead: the same sum without a.
  if (latency >= 0) return {.latency_us = latency * 1e6, .bytes_per_s = 1 / slope};
  double xt = 0, xx = 0;
  for (const CommResult& result : results) {
    const double t = result.seconds.median, w = 1 / (t * t), x = bus_bytes(result);
    xt += w * x * t;
    xx += w * x * x;
  }
  return {.latency_us = 0, .bytes_per_s = xx / xt};
}

namespace {

// The numbers of `key` are this program's own from now on.
void replace_source(Rates& rates, const std::string& key) {
  const size_t old = std::erase_if(rates.sources, [&](const auto& source) {
    return source.first == key || source.first.starts_with(key + ".");
  });
  if (old > 0) rates.sources[key] = "measured by bench comm";
}

}  // namespace

std::string set_link(Rates& rates, LinkRate link, const std::vector<std::string>& hosts) {
  // What others measured would come before it.
  rates.measured_bus.clear();
  std::erase_if(rates.sources,
                [](const auto& source) { return source.first.starts_with("measured_bus"); });
  std::map<std::string, int> ranks;
  for (const std::string& host : hosts) ++ranks[host];
  if (ranks.size() == 1) {
    rates.inside_node = link;
    replace_source(rates, "inside_node");
    return "inside_node";
  }
  const int each = ranks.begin()->second;
  for (const auto& [host, count] : ranks) {
    FSDP_CHECK(count == each,
               "link between hosts: expected as many ranks on each, got {} on {} and {} on {}",
               each, ranks.begin()->first, count, host);
  }
  link.bytes_per_s /= each;
  rates.between_nodes = link;
  replace_source(rates, "between_nodes");
  return "between_nodes";
}

}  // namespace fsdp::tools
