// Addresses, answers, clocks, and one line a kernel.
#include "kernels/meta/meta_backend.h"

#include <algorithm>
#include <cstring>

#include "core/kernel_args.h"
#include "kernels/meta/gpu_workspace.h"

namespace fsdp::meta {
namespace {

// Far above what a program maps, so that following an address by mistake ends it at once.
constexpr uintptr_t kFirstAddress = uintptr_t{1} << 56;
constexpr uintptr_t kFirstOfHost = uintptr_t{1} << 57;
constexpr uintptr_t kFirstOfFile = uintptr_t{1} << 58;

bool is_of_host(const void* address) {
  return reinterpret_cast<uintptr_t>(address) >= kFirstOfHost;
}

bool is_of_file(const void* address) {
  return reinterpret_cast<uintptr_t>(address) >= kFirstOfFile;
}

class MetaStream final : public Stream {
 public:
  MetaStream(Backend& backend, std::string name) : Stream(backend, std::move(name)) {}
  double done_s = 0;  // when it has done all that it was given
};

MetaStream& clock_of(Stream& stream) { return static_cast<MetaStream&>(stream); }

class MetaEvent final : public Event {
 public:
  MetaEvent(double at_s, std::shared_ptr<HostClock> host) : at_s_(at_s), host_(std::move(host)) {}
  void wait() override { host_->now_s = std::max(host_->now_s, at_s_); }
  bool ready() const override { return true; }
  double at_s() const { return at_s_; }

 private:
  double at_s_;
  std::shared_ptr<HostClock> host_;
};

// [Note: one link]. Kernels of the compute stream follow each other, so what ended before this one
// is of no more use; the last collective is kept, after which the next one comes.
double slowed_end(std::deque<HostClock::Span>& collectives, double begin_s, double seconds,
                  double interference) {
  while (collectives.size() > 1 && collectives.front().end_s <= begin_s) collectives.pop_front();
  double at_s = begin_s;
  for (const HostClock::Span& span : collectives) {
    if (span.end_s <= at_s) continue;
    const double alone_s = std::max(span.begin_s - at_s, 0.0);
    if (seconds <= alone_s) break;
    seconds -= alone_s;
    at_s += alone_s;
    const double done_s = (span.end_s - at_s) * (1 - interference);  // of the kernel, beside it
    if (seconds <= done_s) return at_s + seconds / (1 - interference);
    seconds -= done_s;
    at_s = span.end_s;
  }
  return at_s + seconds;
}

}  // namespace

MetaBackend::MetaBackend(const MetaOptions& options)
    : cpu_threads_(options.cpu_threads),
      host_reaches_memory_(options.host_reaches_memory),
      next_(kFirstAddress),
      compute_stream_(std::make_unique<MetaStream>(*this, "compute")) {
  if (options.keeps_blocks) log_.emplace();
  if (options.predicts_workspace) {
    forecast_.emplace(options.cpu_threads, options.fixed_tiles);
  } else {
    ledger_.set_unpredictable(MemoryCategory::kWorkspace);
    bounds_workspace_ = options.bounds_workspace;
    any_order_limit_ = options.any_order_limit;
  }
}

MetaBackend::~MetaBackend() = default;

std::unique_ptr<MetaBackend> MetaBackend::make_other(Place place, const MetaOptions& options,
                                                     std::string stream) const {
  auto out = std::make_unique<MetaBackend>(options);
  out->place_ = place;
  out->next_ = place == Place::kHost ? kFirstOfHost : kFirstOfFile;
  out->host_ = host_;
  out->compute_stream_ = std::make_unique<MetaStream>(*out, std::move(stream));
  return out;
}

std::unique_ptr<MetaBackend> MetaBackend::make_host() const {
  return make_other(Place::kHost, {.cpu_threads = cpu_threads_}, "host");
}

std::unique_ptr<MetaBackend> MetaBackend::make_file() const {
  return make_other(Place::kFile, {.predicts_workspace = false}, "file");
}

double MetaBackend::issue(Stream& stream, std::string_view name) {
  FSDP_CHECK(&stream.backend() == this, "[{}] stream {}: belongs to another backend ({})", name,
             stream.name(), stream.backend().name());
  if (log_) log_->kernel(name);
  if (times_) host_->now_s += times_->issue_seconds();
  return std::max(clock_of(stream).done_s, host_->now_s);
}

void MetaBackend::put(Stream& stream, std::string_view name, int64_t bytes, double seconds,
                      const KernelCall* kernel) {
  double begin_s = issue(stream, name);
  const bool computes = kernel && &stream == compute_stream_.get();
  const bool shared = computes && times_->host_is_device();
  if (shared) begin_s = std::max(begin_s, host_->computed_s);
  const double end_s =
      computes && place_ == Place::kDevice
          ? slowed_end(host_->collectives, begin_s, seconds, times_->interference())
          : begin_s + seconds;
  if (shared) host_->computed_s = end_s;
  put_at(begin_s, end_s, stream, name, bytes, kernel);
}

void MetaBackend::occupy(Stream& stream, std::string_view name, int64_t bytes, double seconds) {
  double begin_s = issue(stream, name);
  if (!host_->collectives.empty()) begin_s = std::max(begin_s, host_->collectives.back().end_s);
  if (seconds > 0) host_->collectives.push_back({begin_s, begin_s + seconds});
  put_at(begin_s, begin_s + seconds, stream, name, bytes, nullptr);
}

void MetaBackend::put_at(double begin_s, double end_s, Stream& stream, std::string_view name,
                         int64_t bytes, const KernelCall* kernel) {
  clock_of(stream).done_s = end_s;
  host_->last_end_s = std::max(host_->last_end_s, end_s);
  if (!recorder_) return;
  recorder_({.stream = stream,
             .name = name,
             .bytes = bytes,
             .scope = scope_,
             .begin_s = begin_s,
             .end_s = end_s,
             .kernel = kernel});
}

double MetaBackend::finish_all() {
  host_->now_s = std::max(host_->now_s, host_->last_end_s);
  return host_->now_s;
}

void MetaBackend::plan(const Stream& stream, const cpu::ScratchNeed& need) {
  const size_t growth = forecast_->plan(stream, &stream == compute_stream_.get(), need);
  if (growth == 0) return;
  const size_t held = forecast_->high_water() + ledger_.outside(forecast_->in_use()) + growth;
  ledger_.hold(held, growth, "scratch", scope_);
  ledger_.add_scratch(growth);
}

// Taken by a GPU's kernel, and given back with it.
void MetaBackend::bound(size_t bytes) {
  if (!bounds_workspace_ || bytes == 0) return;
  ledger_.hold(ledger_.outside(0) + bytes, bytes, name_of(MemoryCategory::kWorkspace), scope_);
  ledger_.add(MemoryCategory::kWorkspace, bytes);
  ledger_.subtract(MemoryCategory::kWorkspace, bytes);
}

// ---- Memory ----

void* MetaBackend::allocate(Stream& stream, size_t bytes, MemoryCategory category) {
  if (bytes == 0) return nullptr;
  const uintptr_t address = next_;
  const size_t rounded = rounded_bytes(bytes);
  next_ += rounded;
  const size_t heaps = forecast_ ? forecast_->high_water_with(stream, rounded) : rounded;
  const size_t outside = ledger_.outside(forecast_ ? forecast_->in_use() : 0);
  ledger_.hold(heaps + outside, bytes, name_of(category), scope_);
  if (forecast_) forecast_->place(stream, address, rounded);
  ledger_.add(category, bytes);
  if (log_) log_->taken(address, bytes, category, scope_);
  const double done_s = clock_of(stream).done_s;
  if (recorder_) {
    recorder_({.stream = stream,
               .name = "allocate",
               .bytes = static_cast<int64_t>(bytes),
               .scope = scope_,
               .begin_s = done_s,
               .end_s = done_s});
  }
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

void MetaBackend::release(Stream&, void* data, size_t bytes, MemoryCategory category) noexcept {
  if (!data) return;
  const auto address = reinterpret_cast<uintptr_t>(data);
  if (log_) log_->given_back(address);
  if (forecast_) forecast_->release(address, rounded_bytes(bytes));
  ledger_.subtract(category, bytes);
}

void MetaBackend::copy(Stream& stream, void* destination, const void* source, size_t bytes) {
  if (bytes == 0 || destination == source) return;
  if (is_of_file(destination) || is_of_file(source)) {
    return put_file_access(stream, is_of_file(destination), bytes);
  }
  if (is_of_host(destination) != is_of_host(source)) {
    const auto count = static_cast<int64_t>(bytes);
    return put(stream, is_of_host(destination) ? "copy_to_host" : "copy_from_host", count,
               times_ ? times_->host_copy_seconds(count) : 0);
  }
  put_kernel(stream, "copy", static_cast<int64_t>(bytes),
             [&] { return copy_call(destination, source, bytes); });
}

void MetaBackend::put_file_access(Stream& stream, bool writes, size_t bytes) {
  const auto count = static_cast<int64_t>(bytes);
  put(stream, writes ? "write_file" : "read_file", count,
      times_ ? times_->file_seconds(count, writes) : 0);
}

void MetaBackend::fill_zero(Stream& stream, void* data, size_t bytes) {
  if (bytes == 0) return;
  if (is_of_file(data)) return put_file_access(stream, true, bytes);
  put_kernel(stream, "fill_zero", static_cast<int64_t>(bytes),
             [&] { return fill_zero_call(data, bytes); });
}

void MetaBackend::copy_from_host(Stream& stream, void*, const void*, size_t bytes) {
  if (place_ == Place::kFile) return put_file_access(stream, true, bytes);
  const auto count = static_cast<int64_t>(bytes);
  if (bytes > 0)
    put(stream, "copy_from_host", count, times_ ? times_->host_copy_seconds(count) : 0);
}

void MetaBackend::copy_to_host(Stream& stream, void* destination, const void* source,
                               size_t bytes) {
  if (bytes > 0) read_later(stream, destination, source, bytes, nullptr)->wait();
}

EventPtr MetaBackend::read_later(Stream& stream, void* destination, const void*, size_t bytes,
                                 std::function<void()> arrived) {
  const auto count = static_cast<int64_t>(bytes);
  if (bytes > 0) {
    if (place_ == Place::kFile) {
      put_file_access(stream, false, bytes);
    } else {
      put(stream, "copy_to_host", count, times_ ? times_->host_copy_seconds(count) : 0);
    }
    std::memset(destination, 0, bytes);
  }
  if (arrived) arrived();
  return record(stream);
}

std::shared_ptr<std::byte> MetaBackend::staging_memory(size_t) {
  fail("[meta] staging memory: transports reach what is not there as well as any");
}

// ---- Order ----

std::unique_ptr<Stream> MetaBackend::create_stream(std::string name) {
  return std::make_unique<MetaStream>(*this, std::move(name));
}

EventPtr MetaBackend::record(Stream& stream) {
  return std::make_shared<MetaEvent>(clock_of(stream).done_s, host_);
}

void MetaBackend::wait(Stream& stream, const EventPtr& event) {
  const auto* const moment = dynamic_cast<const MetaEvent*>(event.get());
  if (!moment) return;  // none, or of a backend that has a clock of its own
  MetaStream& clock = clock_of(stream);
  clock.done_s = std::max(clock.done_s, moment->at_s());
}

void MetaBackend::synchronize(Stream& stream) {
  host_->now_s = std::max(host_->now_s, clock_of(stream).done_s);
}

void MetaBackend::host_task(Stream& stream, std::string_view name, int64_t bytes,
                            std::function<void()> task) {
  put(stream, name, bytes, 0);
  task();
}

// ---- Math: nothing is computed ----

// A kernel that takes nothing has no function of its own there.
template <typename Args>
void MetaBackend::take_workspace(const Stream& stream, const Args& args) {
  if (forecast_) {
    if constexpr (std::is_same_v<Args, MatmulArgs>) {
      plan(stream, forecast_->of_product(args, &stream == compute_stream_.get()));
    } else if constexpr (requires { cpu::scratch_of(args); }) {
      plan(stream, cpu::scratch_of(args));
    }
  }
  if constexpr (requires { args.shard; }) {
    bound(gpu_workspace(args.shard));
  } else if constexpr (std::is_same_v<Args, AttentionBackwardArgs>) {
    if (any_order_limit_ > 0) bound(any_order_workspace(args, any_order_limit_));
  } else if constexpr (requires { gpu_workspace(args); }) {
    bound(gpu_workspace(args));
  }
}

void MetaBackend::run(Stream& stream, Kernel kernel) {
  kernel.visit([&](const auto& args) {
    take_workspace(stream, args);
    put_kernel(stream, args.name(), 0, [&] { return kernel_call(kernel); });
  });
}

}  // namespace fsdp::meta
