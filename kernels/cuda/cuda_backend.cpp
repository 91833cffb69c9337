// CudaBackend's memory and order; the math is in one file per kernel family beside this one.
// Read next: stream.h (mirror, gate, poison), pinned_pool.h.
#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/kernel_args.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/matmul_plan.h"
#include "kernels/cuda/op.h"
#include "kernels/cuda/pinned_pool.h"
#include "kernels/cuda/stream.h"

namespace fsdp::cuda {
namespace {

// Of a copy from the host's memory: bytes of a piece, and pieces under way before the host waits.
constexpr size_t kStagingPiece = size_t{1} << 20;
constexpr size_t kStagingPieces = 16;

DeviceInfo open_device(int device) {
  const DeviceCount count = count_devices();
  FSDP_CHECK(count.devices > 0, "[cuda] no GPU: {}", count.reason);
  FSDP_CHECK(device >= 0 && device < count.devices, "[cuda] device: expected 0 to {}, got {}",
             count.devices - 1, device);
  const std::string missing = missing_code(device);
  FSDP_CHECK(missing.empty(), "[cuda] {}", missing);
  CUDA_CHECK(cudaSetDevice(device));
  cudaDeviceProp properties = {};
  CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  // What is given back stays in the pool: the next step needs it again.
  cudaMemPool_t pool = nullptr;
  CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, device));
  uint64_t keep = UINT64_MAX;
  CUDA_CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  return {.name = properties.name,
          .major = properties.major,
          .minor = properties.minor,
          .multiprocessors = properties.multiProcessorCount,
          .memory = properties.totalGlobalMem,
          .cache = static_cast<size_t>(properties.l2CacheSize),
          .shared_per_block = properties.sharedMemPerBlockOptin};
}

[[noreturn]] void fail_allocation(size_t bytes, MemoryCategory category, const Stream& stream,
                                  const DeviceInfo& device, const MemoryLedger& ledger) {
  (void)cudaGetLastError();
  size_t free = 0, total = 0;
  (void)cudaMemGetInfo(&free, &total);
  throw MachineError(fmt::format(
      "[allocate] {} bytes of {} on stream {}: out of memory ({} has {} MiB, {} MiB of them free "
      "outside the pool)\n{}",
      bytes, name_of(category), stream.name(), device.name, total >> 20, free >> 20,
      ledger.table()));
}

}  // namespace

void set_up_environment() {
  // Every rank has four streams, and those of ranks as threads share a context. With fewer queues a
  // stream that waits for a gate could hold up the one that opens it.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

FreeMemory free_memory(int device) {
  cudaDeviceProp properties = {};
  size_t free = 0, total = 0;
  cudaMemPool_t pool = nullptr;
  CUDA_CHECK(cudaSetDevice(device));
  CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, device));
  const auto bytes = [&](cudaMemPoolAttr attribute) {
    uint64_t value = 0;
    CUDA_CHECK(cudaMemPoolGetAttribute(pool, attribute, &value));
    return value;
  };
  return {.name = properties.name,
          .bytes = free,
          .pool = bytes(cudaMemPoolAttrReservedMemCurrent),
          .pool_used = bytes(cudaMemPoolAttrUsedMemCurrent),
          .pool_peak = bytes(cudaMemPoolAttrReservedMemHigh),
          .pool_used_peak = bytes(cudaMemPoolAttrUsedMemHigh)};
}

bool built() { return true; }

std::string cudnn_missing() { return dnn::missing(); }

std::unique_ptr<Backend> make_backend(const CudaOptions& options) {
  return std::make_unique<CudaBackend>(options);
}

CudaBackend::CudaBackend(const CudaOptions& options)
    : options_(options),
      device_(open_device(options.device)),
      events_(std::make_shared<EventPool>(options.device,
                                          cudaEventDisableTiming | cudaEventBlockingSync)),
      pinned_(std::make_shared<PinnedPool>()) {
  FSDP_CHECK(options.products_leave >= 0 && options.products_leave < device_.multiprocessors,
             "[cuda] runtime.nccl_ctas: leaves products none of the {} multiprocessors of {}: "
             "collectives may take {}",
             device_.multiprocessors, device_.name, options.products_leave);
  if (options_.attention_workspace == 0) {
    options_.attention_workspace = std::max(size_t{1} << 30, device_.memory / 32);
  }
  ledger_.set_unpredictable(MemoryCategory::kWorkspace);  // the libraries say what they want
  auto& mirror = static_cast<cpu::CpuStream&>(host_.compute_stream());
  compute_stream_ = std::make_unique<CudaStream>(*this, "compute", events_, 0, mirror, nullptr);
}

CudaBackend::~CudaBackend() = default;

CudaStream& CudaBackend::own(Stream& stream, std::string_view op) const {
  FSDP_CHECK(&stream.backend() == this, "[{}] stream {}: belongs to another backend ({})", op,
             stream.name(), stream.backend().name());
  return static_cast<CudaStream&>(stream);
}

CudnnAttention* CudaBackend::cudnn_attention() {
  if (options_.attention == AttentionChoice::kOwn || without_cudnn_) return nullptr;
  if (cudnn_attention_) return cudnn_attention_.get();
  try {
    cudnn_attention_ = std::make_unique<CudnnAttention>(options_);
  } catch (const MachineError&) {
    throw;
  } catch (const Error& error) {
    if (options_.attention == AttentionChoice::kCudnn) throw;
    without_cudnn_ = true;
    if (options_.note) {
      options_.note(fmt::format("attention is computed by the own kernels: {}", error.what()));
    }
  }
  return cudnn_attention_.get();
}

// ---- Memory ----

void* CudaBackend::allocate(Stream& stream, size_t bytes, MemoryCategory category) {
  if (bytes == 0) return nullptr;
  ledger_.hold(ledger_.outside(0) + rounded_bytes(bytes), bytes, name_of(category), scope());
  void* data = nullptr;
  const cudaStream_t handle = own(stream, "allocate").handle();
  cudaError_t error = cudaMallocAsync(&data, bytes, handle);
  if (error == cudaErrorMemoryAllocation) {  // the pool may keep it, in pieces that are too small
    give_back_unused();
    error = cudaMallocAsync(&data, bytes, handle);
  }
  if (error == cudaErrorMemoryAllocation) {
    fail_allocation(bytes, category, stream, device_, ledger_);
  }
  check_call(error, "cudaMallocAsync");
  ledger_.add(category, bytes);
  return data;
}

// A destructor may call it while the Error of an operation is on its way. After a
// fault of a kernel every call fails. The stream's next host wait tells of this one.
void CudaBackend::release(Stream& stream, void* data, size_t bytes,
                          MemoryCategory category) noexcept {
  if (!data) return;
  CudaStream& on = own(stream, "release");
  ledger_.subtract(category, bytes);
  const cudaError_t error = cudaFreeAsync(data, on.handle());
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();
  host_.host_task(on.mirror(), "release", 0,
                  [said = fmt::format("cudaFreeAsync: {}: {}", cudaGetErrorName(error),
                                      cudaGetErrorString(error))] { fail("[cuda] {}", said); });
}

// Not cudaDeviceSynchronize: a rank that shares the device may wait for what this one does next. An
// error is told by whoever waits for the stream, or allocates next.
void CudaBackend::give_back_unused() {
  for (const CudaStream* stream : streams_) (void)cudaStreamSynchronize(stream->handle());
  cudaMemPool_t pool = nullptr;
  if (cudaDeviceGetDefaultMemPool(&pool, options_.device) == cudaSuccess) {
    (void)cudaMemPoolTrimTo(pool, 0);
  }
  (void)cudaGetLastError();
}

void CudaBackend::copy(Stream& stream, void* destination, const void* source, size_t bytes) {
  if (bytes == 0 || destination == source) return;
  const Op op(*this, stream, "copy", static_cast<int64_t>(bytes));
  op.started(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, op.stream()),
             "cudaMemcpyAsync");
}

void CudaBackend::fill_zero(Stream& stream, void* data, size_t bytes) {
  if (bytes == 0) return;
  const Op op(*this, stream, "fill_zero", static_cast<int64_t>(bytes));
  op.started(cudaMemsetAsync(data, 0, bytes, op.stream()), "cudaMemsetAsync");
}

void CudaBackend::copy_from_host(Stream& stream, void* destination, const void* source,
                                 size_t bytes) {
  CudaStream& to = own(stream, "copy_from_host");
  const auto* from = static_cast<const std::byte*>(source);
  for (size_t at = 0, pieces = 0; at < bytes; at += kStagingPiece) {
    if (++pieces % kStagingPieces == 0) CUDA_CHECK(cudaStreamSynchronize(to.handle()));
    const size_t piece = std::min(kStagingPiece, bytes - at);
    const std::shared_ptr<std::byte> staging = pinned_->take(piece);
    std::memcpy(staging.get(), from + at, piece);
    copy(stream, static_cast<std::byte*>(destination) + at, staging.get(), piece);
    to.follow();
    to.mirror().enqueue_control([staging] {});  // held until it has been read
  }
}

void CudaBackend::copy_to_host(Stream& stream, void* destination, const void* source,
                               size_t bytes) {
  copy(stream, destination, source, bytes);
  synchronize(stream);
}

// A copy to memory that is not pinned would stop the host: the mirror moves the values on.
EventPtr CudaBackend::read_later(Stream& stream, void* destination, const void* source,
                                 size_t bytes, std::function<void()> arrived) {
  CudaStream& from = own(stream, "read_later");
  const std::shared_ptr<std::byte> staging = pinned_->take(bytes);
  copy(stream, staging.get(), source, bytes);
  from.follow();
  host_.host_task(from.mirror(), "read_later", 0, [=, arrived = std::move(arrived)] {
    std::memcpy(destination, staging.get(), bytes);
    if (arrived) arrived();
  });
  return record(stream);
}

std::shared_ptr<std::byte> CudaBackend::staging_memory(size_t bytes) {
  CUDA_CHECK(cudaSetDevice(options_.device));
  return pinned_->take(bytes);
}

// ---- Order ----

Stream& CudaBackend::compute_stream() { return *compute_stream_; }

// What is not the compute stream carries communication: its kernels go first, so that they find
// room at the edges of compute's.
std::unique_ptr<Stream> CudaBackend::create_stream(std::string name) {
  int lowest = 0, highest = 0;
  CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  std::unique_ptr<Stream> owned = host_.create_stream(name);
  auto& mirror = static_cast<cpu::CpuStream&>(*owned);
  return std::make_unique<CudaStream>(*this, std::move(name), events_, highest, mirror,
                                      std::move(owned));
}

EventPtr CudaBackend::record(Stream& stream) { return own(stream, "record").record(); }

void CudaBackend::wait(Stream& stream, const EventPtr& event) {
  if (event) own(stream, "wait").wait(event);
}

void CudaBackend::synchronize(Stream& stream) { own(stream, "synchronize").synchronize(); }

#define FSDP_DECLARE(Args) \
  template <>              \
  void CudaBackend::compute(Stream& stream, const Args& args);
FSDP_KERNELS(FSDP_DECLARE)
#undef FSDP_DECLARE

void CudaBackend::run(Stream& stream, Kernel kernel) {
  kernel.visit([&](const auto& args) { compute(stream, args); });
}

void CudaBackend::host_task(Stream& stream, std::string_view name, int64_t bytes,
                            std::function<void()> task) {
  CudaStream& on = own(stream, name);
  on.follow();
  host_.host_task(on.mirror(), name, bytes, std::move(task));
  on.gate();
}

void CudaBackend::set_trace(Trace* trace) {
  host_.set_trace(trace);  // first: its ledger is empty
  ledger_.set_trace(trace);
  clock_ = trace ? std::make_unique<OpClock>(*trace, *compute_stream_, options_.device) : nullptr;
}

}  // namespace fsdp::cuda
