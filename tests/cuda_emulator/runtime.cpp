// The CUDA runtime that the project uses, on the CPU: streams and events are those of the CPU
// backend (so real threads, with its delays and removable edges), device memory is the heap. A
// fresh allocation holds NaN patterns, and what is given back is overwritten and freed in stream
// order. Kernels that fail poison their stream, and the context is lost: every later call returns
// cudaErrorLaunchFailure, and cudaGetErrorString tells what happened.
// Read next: kernels/cuda/cuda_backend.cpp, whose calls these are.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/cuda_emulator/pool.h"
#include "tests/cuda_emulator/scheduler.h"

namespace emulator = fsdp::emulator;

struct CUstream_st {
  fsdp::Stream* stream;
  std::unique_ptr<fsdp::Stream> owned;
  std::thread::id creator;
};

struct CUevent_st {
  std::mutex mutex;
  fsdp::EventPtr recorded;  // null: never, which counts as complete
  std::shared_ptr<std::atomic<int64_t>> time_ns = std::make_shared<std::atomic<int64_t>>(0);

  fsdp::EventPtr latest() {
    const std::lock_guard lock(mutex);
    return recorded;
  }
};

namespace {

constexpr int kPoison = 0xff;

struct SharedMemory {           // of a function, in bytes
  size_t by_name = 0;           // as far as its grids have told
  std::optional<size_t> asked;  // dynamic
};

thread_local std::vector<int> visible_devices = {0};

struct Device {
  std::mutex mutex;
  std::map<void*, size_t> allocations;  // of the pool
  std::map<void*, size_t> outside;      // and not of it
  emulator::Pool pool;
  int streams = 0;
  std::string last_failure;
  fsdp::cpu::CpuBackend host;
  struct Destroyed {
    std::unique_ptr<fsdp::Stream> stream;  // may still have something to do
    fsdp::EventPtr end;
  };
  std::vector<Destroyed> destroyed;
  std::set<cudaStream_t> living;
  std::set<const void*> started;  // kernels
  std::map<void*, size_t> pinned;
  std::deque<std::pair<void*, size_t>> given_back;  // pinned memory that nobody may touch
  std::map<const void*, SharedMemory> shared;

  Device() : host(hooks()) {}

  static fsdp::cpu::CpuOptions hooks() {
    fsdp::cpu::CpuOptions options;
    options.delay = [](const std::string& stream, std::string_view task) {
      const auto& delay = emulator::settings().delay;
      return delay ? delay(stream, task) : 0;
    };
    options.ignore_wait = [](const std::string& waiting, const std::string& recorded) {
      const auto& ignore = emulator::settings().ignore_wait;
      return ignore && ignore(waiting, recorded);
    };
    return options;
  }
};

Device& device() {
  static Device instance;
  return instance;
}

// Kernels started, and whether one has failed, since the emulator was configured.
class Context {
 public:
  bool starts_faulty_kernel() {
    const std::lock_guard lock(mutex_);
    renew();
    return ++kernels_ == emulator::settings().faulty_kernel;
  }
  void lose() {
    const std::lock_guard lock(mutex_);
    renew();
    lost_ = emulator::settings().sticky;
  }
  bool lost() {
    const std::lock_guard lock(mutex_);
    renew();
    return lost_;
  }

 private:
  void renew() {
    if (std::exchange(configuration_, emulator::configurations()) == configuration_) return;
    kernels_ = 0;
    lost_ = false;
  }

  std::mutex mutex_;
  int64_t configuration_ = 0;
  int64_t kernels_ = 0;
  bool lost_ = false;
};

Context& context() {
  static Context instance;
  return instance;
}

std::atomic<int64_t> clock_ahead_ns{0};

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t returned(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// What a call returns whose own result is `error`.
cudaError_t in_context(cudaError_t error = cudaSuccess) {
  return returned(context().lost() ? cudaErrorLaunchFailure : error);
}

template <typename F>
void enqueue(cudaStream_t stream, std::string_view name, F task) {
  device().host.host_task(*stream->stream, name, 0, std::move(task));
}

thread_local emulator::Counts own_counts;

template <typename F>
cudaError_t waiting(F wait) {
  ++own_counts.host_waits;
  try {
    wait();
    return in_context();
  } catch (const std::exception& error) {
    const std::lock_guard lock(device().mutex);
    device().last_failure = error.what();
    return returned(cudaErrorLaunchFailure);
  }
}

// See Settings::driver_waits.
void wait_implicitly() {
  using emulator::DriverWaits;
  const DriverWaits waits = emulator::settings().driver_waits;
  if (waits == DriverWaits::kNever) return;
  std::vector<fsdp::EventPtr> ends;
  {
    const std::lock_guard lock(device().mutex);
    for (const cudaStream_t stream : device().living) {
      if (waits == DriverWaits::kForOwn && stream->creator != std::this_thread::get_id()) continue;
      ends.push_back(device().host.record(*stream->stream));
    }
  }
  for (const fsdp::EventPtr& end : ends) {
    try {
      end->wait();
    } catch (const std::exception&) {  // whoever waits for the stream is told
    }
  }
}

// Whether the GPU reaches these bytes without the host: its own memory, or pinned.
bool reaches(const void* address, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const std::lock_guard lock(device().mutex);
  for (const auto* blocks : {&device().allocations, &device().outside, &device().pinned}) {
    auto block = blocks->upper_bound(const_cast<void*>(address));
    if (block == blocks->begin()) continue;
    --block;
    if (begin + bytes <= reinterpret_cast<uintptr_t>(block->first) + block->second) return true;
  }
  return false;
}

std::string stream_name(int priority) {
  const std::lock_guard lock(device().mutex);
  return (priority < 0 ? "gpu-high-" : "gpu-") + std::to_string(device().streams++);
}

SharedMemory shared_of(const void* function) {
  const std::lock_guard lock(device().mutex);
  return device().shared[function];
}

bool first_start(const void* function) {
  const std::lock_guard lock(device().mutex);
  return device().started.insert(function).second;
}

CUresult wait_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned) {
  if (context().lost()) return CUDA_ERROR_LAUNCH_FAILED;
  ++own_counts.stream_waits;
  enqueue(stream, "wait_value", [address, value] {
    const std::atomic_ref at(*reinterpret_cast<uint32_t*>(address));
    while (static_cast<int32_t>(at.load(std::memory_order_acquire) - value) < 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
  return CUDA_SUCCESS;
}

}  // namespace

namespace fsdp::emulator {

cudaError_t enqueue_grid(cudaStream_t stream, dim3 grid, dim3 block, size_t shared_bytes,
                         std::function<void()> kernel, const void* function) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > 1024 || grid.y > 65535 || grid.z > 65535 ||
      uint64_t{grid.x} * grid.y * grid.z == 0) {
    return returned(cudaErrorInvalidConfiguration);
  }
  if (const cudaError_t error = in_context(); error != cudaSuccess) return error;
  const SharedMemory shared = shared_of(function);
  const size_t limit = shared.asked ? settings().shared_per_block : kSharedWithoutAsking;
  if (shared_bytes > shared.asked.value_or(limit) || shared.by_name + shared_bytes > limit) {
    return returned(cudaErrorInvalidValue);
  }
  if (first_start(function)) wait_implicitly();
  ++own_counts.launches[innermost_range()];
  const bool faulty = context().starts_faulty_kernel();
  enqueue(stream, "kernel", [=, kernel = std::move(kernel)] {
    size_t by_name = 0;
    try {
      if (faulty) fail("an illegal memory access was encountered");
      by_name = run_grid(grid, block, shared_bytes, kernel, limit, function);
    } catch (const std::exception& error) {
      context().lose();
      const std::lock_guard lock(device().mutex);
      device().last_failure = error.what();
      throw;
    }
    const std::lock_guard lock(device().mutex);
    size_t& known = device().shared[function].by_name;
    known = std::max(known, by_name);
  });
  return cudaSuccess;
}

cudaError_t allow_shared(const void* function, size_t bytes) {
  if (shared_of(function).by_name + bytes > settings().shared_per_block) {
    return returned(cudaErrorInvalidValue);
  }
  const std::lock_guard lock(device().mutex);
  device().shared[function].asked = bytes;
  return cudaSuccess;
}

cudaError_t find_static_shared(const void* function, size_t& bytes) {
  bytes = shared_of(function).by_name;
  return returned(static_cast<cudaError_t>(settings().kernel_code));
}

Counts counts() { return own_counts; }

void wait_for_streams() { wait_implicitly(); }

void see_devices(std::vector<int> of_machine) { visible_devices = std::move(of_machine); }

void spend(int64_t ns) { clock_ahead_ns += ns; }

void enqueue_task(cudaStream_t stream, std::string_view name, std::function<void()> task) {
  enqueue(stream, name, std::move(task));
}

}  // namespace fsdp::emulator

extern "C" {

// ---- devices and errors ----
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  int driver = 0;
  cudaDriverGetVersion(&driver);
  if (driver / 1000 < CUDART_VERSION / 1000) return returned(cudaErrorInsufficientDriver);
  *count = static_cast<int>(visible_devices.size());
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  const int driver = emulator::settings().driver;
  *version = driver == -1 ? CUDART_VERSION : driver;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int index) {
  return in_context(index == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaGetDevice(int* index) {
  *index = 0;
  return cudaSuccess;
}
// The shape of an H200, but for its multiprocessors.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
  if (context().lost()) return in_context();
  if (index < 0 || index >= static_cast<int>(visible_devices.size())) {
    return returned(cudaErrorInvalidDevice);
  }
  *properties = {};
  std::strncpy(properties->name, "emulated GPU", sizeof properties->name - 1);
  properties->pciBusID = visible_devices[static_cast<size_t>(index)];
  properties->uuid.bytes[0] = static_cast<char>(properties->pciBusID);
  properties->major = emulator::settings().compute_capability / 10;
  properties->minor = emulator::settings().compute_capability % 10;
  properties->multiProcessorCount = emulator::settings().multiprocessors;
  properties->l2CacheSize = 4096;
  properties->totalGlobalMem = emulator::settings().memory;
  properties->sharedMemPerBlock = 49152;
  properties->sharedMemPerBlockOptin = emulator::settings().shared_per_block;
  properties->warpSize = 32;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return in_context();  // nothing in the project relies on it
}
cudaError_t cudaGetLastError() {
  const cudaError_t error = std::exchange(last_error, cudaSuccess);
  return context().lost() ? cudaErrorLaunchFailure : error;  // clears nothing then
}
cudaError_t cudaPeekAtLastError() { return in_context(last_error); }
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    default:
      return "cudaError";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  if (error != cudaErrorLaunchFailure) return cudaGetErrorName(error);
  thread_local std::string text;
  const std::lock_guard lock(device().mutex);
  text = device().last_failure;
  return text.c_str();
}

// ---- memory ----
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = nullptr;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr attribute, void* value) {
  const emulator::Pool& pool = device().pool;
  auto* const bytes = static_cast<uint64_t*>(value);
  if (attribute == cudaMemPoolAttrReservedMemCurrent) {
    *bytes = pool.reserved();
  } else if (attribute == cudaMemPoolAttrUsedMemCurrent) {
    *bytes = pool.used();
  } else {
    return returned(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) {
  device().pool.trim();
  return in_context();
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  if (context().lost()) return in_context();
  *total = emulator::settings().memory;
  *free = device().pool.free();
  return cudaSuccess;
}
// Exactly as large as asked for, so that AddressSanitizer sees the first byte beyond.
cudaError_t cudaMallocAsync(void** address, size_t bytes, cudaStream_t stream) {
  if (context().lost()) return in_context();
  ++own_counts.allocations;
  if (!device().pool.take(bytes, stream) || ::posix_memalign(address, 512, bytes) != 0) {
    return returned(cudaErrorMemoryAllocation);
  }
  {
    const std::lock_guard lock(device().mutex);
    device().allocations[*address] = bytes;
  }
  enqueue(stream, "poison", [data = *address, bytes] { std::memset(data, kPoison, bytes); });
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) {
  size_t bytes = 0;
  {
    const std::lock_guard lock(device().mutex);
    const auto found = device().allocations.find(address);
    if (found == device().allocations.end()) return returned(cudaErrorInvalidValue);
    bytes = found->second;
    device().allocations.erase(found);
  }
  // A task that is skipped, behind an error, must free it too: hence an owner.
  std::shared_ptr<void> owner(address,
                              [released = device().pool.give_back(bytes, stream)](void* data) {
                                std::free(data);
                                *released = true;
                              });
  enqueue(stream, "free",
          [owner = std::move(owner), bytes] { std::memset(owner.get(), kPoison, bytes); });
  return in_context();
}
// Of no stream: NCCL's buffers.
cudaError_t cudaMalloc(void** address, size_t bytes) {
  if (context().lost()) return in_context();
  wait_implicitly();
  if (!device().pool.take_outside(bytes) || ::posix_memalign(address, 512, bytes) != 0) {
    return returned(cudaErrorMemoryAllocation);
  }
  std::memset(*address, kPoison, bytes);
  const std::lock_guard lock(device().mutex);
  device().outside[*address] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* address) {
  wait_implicitly();
  size_t bytes = 0;
  {
    const std::lock_guard lock(device().mutex);
    const auto found = device().outside.find(address);
    if (found == device().outside.end()) return returned(cudaErrorInvalidValue);
    bytes = found->second;
    device().outside.erase(found);
  }
  device().pool.give_back_outside(bytes);
  // volatile: the compiler leaves out what is written just before free
  std::fill_n(static_cast<volatile unsigned char*>(address), bytes,
              static_cast<unsigned char>(kPoison));
  std::free(address);
  return in_context();
}
// Whole pages, so that who still uses what was given back ends the program.
cudaError_t cudaMallocHost(void** address, size_t bytes) {
  if (context().lost()) return in_context();
  wait_implicitly();
  void* pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return returned(cudaErrorMemoryAllocation);
  *address = std::memset(pages, kPoison, bytes);
  const std::lock_guard lock(device().mutex);
  device().pinned[pages] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* address) {
  wait_implicitly();
  const std::lock_guard lock(device().mutex);
  const auto found = device().pinned.find(address);
  if (found == device().pinned.end()) return returned(cudaErrorInvalidValue);
  ::mmap(address, found->second, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  auto& given_back = device().given_back;
  given_back.push_back(*found);
  device().pinned.erase(found);
  constexpr size_t kMost = 1000;  // a process may have 65530 mappings
  if (given_back.size() > kMost) {
    ::munmap(given_back.front().first, given_back.front().second);
    given_back.pop_front();
  }
  return in_context();
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  if (context().lost()) return in_context();
  enqueue(stream, "copy", [=] { std::memmove(to, from, bytes); });
  if (reaches(to, bytes) && reaches(from, bytes)) return cudaSuccess;
  return cudaStreamSynchronize(stream);  // of or to pageable memory: the host waits
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  if (context().lost()) return in_context();
  enqueue(stream, "memset", [=] { std::memset(data, value, bytes); });
  return cudaSuccess;
}

// ---- streams ----
cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = -5;
  return cudaSuccess;
}
// Ends the threads of destroyed streams that have done all: a thousand stacks each.
static void end_destroyed() {
  std::vector<Device::Destroyed> done;
  const std::lock_guard lock(device().mutex);
  auto& all = device().destroyed;
  const auto first = std::stable_partition(
      all.begin(), all.end(), [](const Device::Destroyed& s) { return !s.end->ready(); });
  std::move(first, all.end(), std::back_inserter(done));
  all.erase(first, all.end());
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  if (context().lost()) return in_context();
  end_destroyed();
  auto owned = device().host.create_stream(stream_name(priority));
  fsdp::Stream* made = owned.get();
  *stream = new CUstream_st{made, std::move(owned), std::this_thread::get_id()};
  const std::lock_guard lock(device().mutex);
  device().living.insert(*stream);
  return cudaSuccess;
}
// Returns at once: what the stream was given is done, if nobody waited for it, some time later.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  fsdp::EventPtr end = device().host.record(*stream->stream);
  {
    const std::lock_guard lock(device().mutex);
    device().living.erase(stream);
    device().destroyed.push_back({std::move(stream->owned), std::move(end)});
  }
  delete stream;
  end_destroyed();
  return in_context();
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return waiting([&] { device().host.synchronize(*stream->stream); });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (context().lost()) return in_context();
  ++own_counts.stream_waits;
  device().host.wait(*stream->stream, event->latest());
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  const bool known = std::strcmp(symbol, "cuStreamWaitValue32") == 0;
  *function = known ? reinterpret_cast<void*>(wait_value) : nullptr;
  *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

// ---- events ----
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  if (context().lost()) return in_context();
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return in_context();
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (context().lost()) return in_context();
  ++own_counts.events;
  enqueue(stream, "event",
          [time = event->time_ns] { *time = fsdp::trace_clock_ns() + clock_ahead_ns; });
  const fsdp::EventPtr recorded = device().host.record(*stream->stream);
  const std::lock_guard lock(event->mutex);
  event->recorded = recorded;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return waiting([&] {
    if (const fsdp::EventPtr recorded = event->latest()) recorded->wait();
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (context().lost()) return in_context();
  const fsdp::EventPtr recorded = event->latest();
  return returned(!recorded || recorded->ready() ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  if (context().lost()) return in_context();
  *ms = static_cast<float>(static_cast<double>(*end->time_ns - *begin->time_ns) * 1e-6);
  return cudaSuccess;
}

}  // extern "C"
