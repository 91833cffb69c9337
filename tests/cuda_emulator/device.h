// What the parts of the emulated CUDA runtime share: the device, whose streams are those of a CPU
// backend, and its context. Read next: runtime.cpp, memory.cpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/cuda_emulator/pool.h"
#include "tests/cuda_emulator/scheduler.h"

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

namespace fsdp::emulator {

constexpr int kPoison = 0xff;

struct SharedMemory {           // of a function, in bytes
  size_t by_name = 0;           // as far as its grids have told
  std::optional<size_t> asked;  // dynamic
};

struct Device {
  std::mutex mutex;
  std::map<void*, size_t> allocations;  // of the pool
  std::map<void*, size_t> outside;      // and not of it
  Pool pool;
  int streams = 0;
  std::string last_failure;
  cpu::CpuBackend host;
  struct Destroyed {
    std::unique_ptr<Stream> stream;  // may still have something to do
    EventPtr end;
  };
  std::vector<Destroyed> destroyed;
  std::set<cudaStream_t> living;
  // Kernels, each by the thread that started it first: where each rank has a GPU, each loads its
  // own.
  std::set<std::pair<std::thread::id, const void*>> started;
  std::map<void*, size_t> pinned;
  std::deque<std::pair<void*, size_t>> given_back;  // pinned memory that nobody may touch
  std::map<const void*, SharedMemory> shared;

  Device() : host(hooks()) {}

  static cpu::CpuOptions hooks() {
    cpu::CpuOptions options;
    options.delay = [](const std::string& stream, std::string_view task) {
      const auto& delay = settings().delay;
      return delay ? delay(stream, task) : 0;
    };
    options.ignore_wait = [](const std::string& waiting, const std::string& recorded) {
      const auto& ignore = settings().ignore_wait;
      return ignore && ignore(waiting, recorded);
    };
    return options;
  }
};

inline Device& device() {
  static Device instance;
  return instance;
}

// Kernels started, and whether one has failed, since the emulator was configured.
class Context {
 public:
  bool starts_faulty_kernel() {
    const std::lock_guard lock(mutex_);
    renew();
    return ++kernels_ == settings().faulty_kernel;
  }
  void lose() {
    const std::lock_guard lock(mutex_);
    renew();
    lost_ = settings().sticky;
  }
  bool lost() {
    const std::lock_guard lock(mutex_);
    renew();
    return lost_;
  }

 private:
  void renew() {
    if (std::exchange(configuration_, configurations()) == configuration_) return;
    kernels_ = 0;
    lost_ = false;
  }

  std::mutex mutex_;
  int64_t configuration_ = 0;
  int64_t kernels_ = 0;
  bool lost_ = false;
};

inline Context& context() {
  static Context instance;
  return instance;
}

inline thread_local cudaError_t last_error = cudaSuccess;

inline cudaError_t returned(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// What a call returns whose own result is `error`.
inline cudaError_t in_context(cudaError_t error = cudaSuccess) {
  return returned(context().lost() ? cudaErrorLaunchFailure : error);
}

inline thread_local Counts own_counts;

template <typename F>
cudaError_t waiting(F wait) {
  ++own_counts.host_waits;
  try {
    wait();
    return in_context();
  } catch (const std::exception& error) {
    if (context().lost()) return in_context();  // what was first stays
    const std::lock_guard lock(device().mutex);
    device().last_failure = error.what();
    return returned(cudaErrorLaunchFailure);
  }
}

// Held by a call that waits for streams of all: no other thread's call is served meanwhile, as a
// driver with one lock for a context may do.
inline std::shared_mutex& context_lock() {
  static std::shared_mutex instance;
  return instance;
}

template <typename F>
void enqueue(cudaStream_t stream, std::string_view name, F task) {
  const std::shared_lock lock(context_lock());
  device().host.host_task(*stream->stream, name, 0, std::move(task));
}

// See Settings::driver_waits.
inline void wait_implicitly() {
  const DriverWaits waits = settings().driver_waits;
  if (waits == DriverWaits::kNever) return;
  std::vector<EventPtr> ends;
  {
    const std::lock_guard lock(device().mutex);
    const auto is_own = [](cudaStream_t s) { return s->creator == std::this_thread::get_id(); };
    const bool of_rank = std::ranges::any_of(device().living, is_own);  // not a worker of one
    for (const cudaStream_t stream : device().living) {
      if (waits == DriverWaits::kForOwn && of_rank && !is_own(stream)) continue;
      ends.push_back(device().host.record(*stream->stream));
    }
  }
  std::unique_lock lock(context_lock(), std::defer_lock);
  if (waits == DriverWaits::kForAll) lock.lock();
  for (const EventPtr& end : ends) {
    try {
      end->wait();
    } catch (const std::exception&) {  // whoever waits for the stream is told
    }
  }
}

}  // namespace fsdp::emulator
