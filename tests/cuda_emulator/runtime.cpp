// The CUDA runtime that the project uses, on the CPU: streams and events are those of the CPU
// backend (so real threads, with its delays and removable edges). Kernels that fail poison their
// stream, and the context is lost: every later call returns cudaErrorLaunchFailure, and
// cudaGetErrorString tells what happened. Not here: memory (memory.cpp).
// Read next: kernels/cuda/cuda_backend.cpp, whose calls these are.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <iterator>

#include <cuda.h>

#include "tests/cuda_emulator/device.h"

using namespace fsdp::emulator;

namespace {

thread_local std::vector<int> visible_devices = {0};

std::atomic<int64_t> clock_ahead_ns{0};

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
  const bool own = settings().driver_waits == DriverWaits::kForOwn;
  return device()
      .started.emplace(own ? std::this_thread::get_id() : std::thread::id(), function)
      .second;
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
      {
        const std::lock_guard lock(device().mutex);
        device().last_failure = error.what();
      }
      context().lose();  // from here on other threads ask for the text
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

bool context_lost() { return context().lost(); }

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
  if (const int error = settings().count_error) return returned(static_cast<cudaError_t>(error));
  int driver = 0;
  cudaDriverGetVersion(&driver);
  if (driver / 1000 < CUDART_VERSION / 1000) return returned(cudaErrorInsufficientDriver);
  *count = static_cast<int>(visible_devices.size());
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  const int driver = settings().driver;
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
  properties->major = settings().compute_capability / 10;
  properties->minor = settings().compute_capability % 10;
  properties->multiProcessorCount = settings().multiprocessors;
  properties->l2CacheSize = 4096;
  properties->totalGlobalMem = settings().memory;
  properties->sharedMemPerBlock = 49152;
  properties->sharedMemPerBlockOptin = settings().shared_per_block;
  properties->warpSize = 32;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return in_context();  // nothing in the project relies on it
}
cudaError_t cudaGetLastError() {
  // Of this thread's calls. Where the context is lost it clears nothing.
  return context().lost() ? last_error : std::exchange(last_error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() { return last_error; }
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
