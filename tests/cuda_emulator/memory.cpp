// The memory of the emulated CUDA runtime: it is the heap, in numbers that pool.h keeps. A fresh
// allocation holds NaN patterns, and what is given back is overwritten and freed in stream order.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>

#include "tests/cuda_emulator/device.h"

using namespace fsdp::emulator;

namespace {

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

}  // namespace

extern "C" {

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = nullptr;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr attribute, void* value) {
  const Pool& pool = device().pool;
  auto* const bytes = static_cast<uint64_t*>(value);
  switch (attribute) {
    case cudaMemPoolAttrReservedMemCurrent:
      *bytes = pool.reserved();
      break;
    case cudaMemPoolAttrReservedMemHigh:
      *bytes = pool.reserved_peak();
      break;
    case cudaMemPoolAttrUsedMemCurrent:
      *bytes = pool.used();
      break;
    case cudaMemPoolAttrUsedMemHigh:
      *bytes = pool.used_peak();
      break;
    default:
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
  *total = settings().memory;
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

}  // extern "C"
