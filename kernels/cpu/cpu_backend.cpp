// CpuBackend's memory and order; the math is in one file per kernel family beside this one.
// Read next: stream.h (queue, events, poison), allocator.h (stream-ordered memory).
#include "kernels/cpu/cpu_backend.h"

#include <cstring>
#include <fstream>

#include <sys/resource.h>
#include <unistd.h>

#include "core/kernel_args.h"
#include "kernels/cpu/allocator.h"
#include "kernels/cpu/copy.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/stream.h"

namespace fsdp::cpu {
namespace {

constexpr int64_t kCopyGrain = int64_t{1} << 20;   // bytes that one thread copies at a time
constexpr size_t kCaptureLimit = size_t{1} << 20;  // larger sources are copied while we wait

CpuOptions checked(CpuOptions options) {
  FSDP_CHECK(options.threads >= 1, "[cpu] threads: expected at least 1, got {}", options.threads);
  return options;
}

CpuStream& cpu_stream(Stream& stream) { return static_cast<CpuStream&>(stream); }

void parallel_copy(ThreadTeam& team, void* destination, const void* source, size_t bytes) {
  team.parallel_for(static_cast<int64_t>(bytes), kCopyGrain, [&](int64_t begin, int64_t end) {
    std::byte* to = static_cast<std::byte*>(destination) + begin;
    const std::byte* from = static_cast<const std::byte*>(source) + begin;
    const auto part = static_cast<size_t>(end - begin);
    bytes >= kStreamingBytes ? copy_past_caches(to, from, part)
                             : static_cast<void>(std::memcpy(to, from, part));
  });
}

// Bytes, of the whole process: threads' stacks and the heap of malloc count too.
size_t used_addresses() {
  std::ifstream file("/proc/self/statm");
  size_t pages = 0;
  file >> pages;
  return pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

std::string memory_limits(size_t machine) {
  rlimit address_space = {};
  std::string out = fmt::format("this machine has {} MiB", machine >> 20);
  if (::getrlimit(RLIMIT_AS, &address_space) == 0 && address_space.rlim_cur != RLIM_INFINITY) {
    out += fmt::format(", this process may use {} MiB of addresses and uses {}: ulimit -v",
                       address_space.rlim_cur >> 20, used_addresses() >> 20);
  }
  return out;
}

}  // namespace

CpuBackend::CpuBackend(CpuOptions options)
    : options_(checked(std::move(options))),
      allocator_(std::make_unique<StreamAllocator>()),
      product_scratch_(std::make_unique<ProductScratch>(options_.fixed_tiles)),
      compute_stream_(std::make_unique<CpuStream>(*this, options_.compute_name, options_.threads)) {
}

CpuBackend::~CpuBackend() = default;

// ---- Memory ----

void* CpuBackend::allocate(Stream& stream, size_t bytes, MemoryCategory category) {
  if (bytes == 0) return nullptr;
  if (options_.memory) return allocate_block(bytes, category);
  const size_t rounded = rounded_bytes(bytes);
  const size_t heaps = allocator_->high_water() + allocator_->growth(stream, rounded);
  ledger_.hold(heaps + ledger_.outside(allocator_->in_use()), bytes, name_of(category), scope());
  std::byte* data = allocator_->allocate(stream, rounded);
  if (!data) {
    fail("[allocate] {} bytes of {} on stream {}: out of memory ({})\n{}", bytes, name_of(category),
         stream.name(), memory_limits(allocator_->limit()), ledger_.table());
  }
  ledger_.add(category, bytes);
  if constexpr (kMarksMemory) {
    cpu_stream(stream).enqueue_control([data, rounded] { mark_usable(data, rounded); });
  }
  return data;
}

void* CpuBackend::allocate_block(size_t bytes, MemoryCategory category) {
  ledger_.hold(ledger_.outside(0) + rounded_bytes(bytes), bytes, name_of(category), scope());
  std::shared_ptr<std::byte> block = options_.memory(bytes);
  void* data = block.get();
  blocks_[data] = std::move(block);
  ledger_.add(category, bytes);
  return data;
}

void CpuBackend::release(Stream& stream, void* data, size_t bytes,
                         MemoryCategory category) noexcept {
  if (!data) return;
  if (const auto own = blocks_.find(data); own != blocks_.end()) {
    cpu_stream(stream).enqueue_control([block = std::move(own->second)] {});  // in its order
    blocks_.erase(own);
    return ledger_.subtract(category, bytes);
  }
  const size_t rounded = rounded_bytes(bytes);
  if constexpr (kMarksMemory) {
    cpu_stream(stream).enqueue_control([data, rounded] { mark_free(data, rounded); });
  }
  allocator_->release(stream, static_cast<std::byte*>(data), rounded);
  ledger_.subtract(category, bytes);
}

void CpuBackend::copy(Stream& stream, void* destination, const void* source, size_t bytes) {
  if (bytes == 0 || destination == source) return;
  enqueue(stream, "copy", static_cast<int64_t>(bytes),
          [=](Worker& worker) { parallel_copy(worker.team, destination, source, bytes); });
}

void CpuBackend::fill_zero(Stream& stream, void* data, size_t bytes) {
  if (bytes == 0) return;
  enqueue(stream, "fill_zero", static_cast<int64_t>(bytes), [=](Worker& worker) {
    worker.team.parallel_for(
        static_cast<int64_t>(bytes), kCopyGrain, [&](int64_t begin, int64_t end) {
          std::memset(static_cast<std::byte*>(data) + begin, 0, static_cast<size_t>(end - begin));
        });
  });
}

void CpuBackend::copy_from_host(Stream& stream, void* destination, const void* source,
                                size_t bytes) {
  if (bytes == 0) return;
  if (bytes > kCaptureLimit) {  // rather wait than hold a second copy
    copy(stream, destination, source, bytes);
    cpu_stream(stream).record()->block();
    return;
  }
  const auto* first = static_cast<const std::byte*>(source);
  enqueue(stream, "copy_from_host", static_cast<int64_t>(bytes),
          [destination, captured = std::vector<std::byte>(first, first + bytes)](Worker&) {
            std::memcpy(destination, captured.data(), captured.size());
          });
}

void CpuBackend::copy_to_host(Stream& stream, void* destination, const void* source, size_t bytes) {
  copy(stream, destination, source, bytes);
  synchronize(stream);
}

EventPtr CpuBackend::read_later(Stream& stream, void* destination, const void* source, size_t bytes,
                                std::function<void()> arrived) {
  copy(stream, destination, source, bytes);
  if (arrived) host_task(stream, "arrived", 0, std::move(arrived));
  return record(stream);
}

std::shared_ptr<std::byte> CpuBackend::staging_memory(size_t bytes) {
  const auto block = std::make_shared<std::vector<std::byte>>(bytes);
  return {block, block->data()};
}

// ---- Order ----

std::unique_ptr<Stream> CpuBackend::create_stream(std::string name) {
  return std::make_unique<CpuStream>(*this, std::move(name), 1);
}

EventPtr CpuBackend::record(Stream& stream) { return cpu_stream(stream).record(); }

void CpuBackend::wait(Stream& stream, const EventPtr& event) {
  if (event) cpu_stream(stream).wait(event);
}

void CpuBackend::synchronize(Stream& stream) { cpu_stream(stream).synchronize(); }

#define FSDP_DECLARE(Args) \
  template <>              \
  void CpuBackend::compute(Stream& stream, const Args& args);
FSDP_KERNELS(FSDP_DECLARE)
#undef FSDP_DECLARE

void CpuBackend::run(Stream& stream, Kernel kernel) {
  kernel.visit([&](const auto& args) { compute(stream, args); });
}

void CpuBackend::host_task(Stream& stream, std::string_view name, int64_t bytes,
                           std::function<void()> task) {
  enqueue(stream, name, bytes, [task = std::move(task)](Worker&) { task(); });
}

void CpuBackend::set_scope(std::string scope) {
  scope_ = scope.empty() ? nullptr : std::make_shared<const std::string>(std::move(scope));
}

int CpuBackend::planned_threads(const Stream& stream) const {
  return &stream == compute_stream_.get() ? options_.threads : 1;
}

// See [Note: scratch is counted when work is issued].
void CpuBackend::plan_scratch(Stream& stream, const ScratchNeed& need) {
  const size_t growth = cpu_stream(stream).plan_scratch(need);
  if (growth == 0) return;
  const size_t in_use = allocator_->in_use();
  ledger_.hold(allocator_->high_water() + ledger_.outside(in_use) + growth, growth, "scratch",
               scope());
  ledger_.add_scratch(growth);
}

void CpuBackend::enqueue(Stream& stream, std::string_view name, int64_t bytes,
                         std::function<void(Worker&)> task) {
  FSDP_CHECK(&stream.backend() == this, "[{}] stream {}: belongs to another backend ({})", name,
             stream.name(), stream.backend().name());
  Task entry;
  entry.run = std::move(task);
  entry.name = name;
  entry.scope = scope_;
  entry.bytes = bytes;
  if (trace_) {
    entry.trace = trace_;
    entry.enqueued_ns = trace_clock_ns();
    entry.sequence = trace_->next_sequence();
  }
  cpu_stream(stream).enqueue(std::move(entry));
}

}  // namespace fsdp::cpu
