// The emulated device's memory in numbers: what is used, what the driver's stream-ordered pool
// keeps of what was given back, and what libraries took of the device themselves. Not here: the
// bytes, which are of the heap (runtime.cpp).
//
// [Note: what the pool keeps] Stricter than cudaMallocAsync mostly is: what was given back serves a
// smaller or equal allocation, at once in its own stream and in others when its stream has come to
// the release. Kept blocks never join, so memory that came in small pieces serves no large
// allocation until the pool is trimmed, which only blocks are whose stream has come so far.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include <cuda_runtime_api.h>

namespace fsdp::emulator {

class Pool {
 public:
  bool take(size_t bytes, cudaStream_t stream);  // false: the device has no room
  // Whoever holds the result sets it when the stream has come to the release.
  std::shared_ptr<std::atomic<bool>> give_back(size_t bytes, cudaStream_t stream);
  void trim();

  bool take_outside(size_t bytes);  // of the device, not of the pool
  void give_back_outside(size_t bytes);

  size_t used() const;      // of the pool
  size_t reserved() const;  // by the pool: used and kept
  size_t used_peak() const;
  size_t reserved_peak() const;
  size_t free() const;  // that the device has left

 private:
  struct Kept {
    size_t bytes;
    cudaStream_t stream;
    std::shared_ptr<std::atomic<bool>> released;
  };
  size_t kept() const;
  bool has_room(size_t bytes) const;

  mutable std::mutex mutex_;
  std::vector<Kept> kept_;
  size_t used_ = 0, outside_ = 0, used_peak_ = 0, reserved_peak_ = 0;
};

}  // namespace fsdp::emulator
