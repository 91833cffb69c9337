// The threads of one block as fibers of one OS thread, and how they wait for each other. What
// kernels call (builtins.h, warp.h, ...) ends here. A fiber runs until it waits; then the next one
// that can run goes on, in the order of the settings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <cuda_runtime_api.h>
#include <vector_types.h>

namespace fsdp::emulator {

struct Place {
  const char* file;
  int line;
  const char* what;
};
// True when this barrier or wait is left out: by the settings, or because it is what the
// environment names in CUDA_EMULATOR_SKIP. Remembers that the place was reached; at the end of the
// program all such places are written to the file CUDA_EMULATOR_PLACES, if that is set. For
// mutations.sh.
bool left_out(const Place& place);

// Of NVTX: the one that the calling thread has begun last and not ended; "": none.
std::string innermost_range();

// Who is told what the threads of a grid do; test_cuda_races has one (races.cpp). A grid runs on
// one OS thread, and so do all calls about it.
class Watcher {
 public:
  virtual ~Watcher() = default;
  // `function`: the kernel, null where it is not known.
  virtual void begin_grid(int threads_of_block, const void* function) = 0;
  virtual void begin_block() = 0;
  virtual void shared_memory(const void* begin, size_t bytes) = 0;  // a part of the block's
  // The running thread comes to where `expected` threads meet, and memory is in order after.
  virtual void meet(const void* where, int expected) = 0;
  virtual void fence() = 0;
  virtual void read(const void* address, size_t bytes, const void* code) = 0;
  virtual void write(const void* address, size_t bytes, const void* code) = 0;
  virtual void end_grid() = 0;  // throws fsdp::Error with what it found
};
void set_watcher(Watcher* watcher);  // null: nobody; before the first grid
// Linear within its block; -1 outside of kernels.
int running_thread();
bool on_running_stack(const void* address);

// ---- of the running thread ----
const uint3& thread_index();
const uint3& block_index();
const dim3& block_extent();
const dim3& grid_extent();
int lane();

// ---- waiting ----
// All threads of the block. One that has returned is an error here, though a GPU would go on.
void block_barrier(const Place& place);
int block_count(const Place& place, int predicate);  // how many threads gave a true predicate

constexpr size_t kExchangeBytes = 32;
// Every lane of `mask` gives `bytes` (at most kExchangeBytes) and gets those of all, at
// result + lane * kExchangeBytes; valid until the lane's next exchange but one.
const std::byte* exchange(uint32_t mask, const void* value, size_t bytes, const char* what);
void warp_barrier(const Place& place, uint32_t mask);
void fence();

// ---- shared memory of the block: poisoned when the block begins ----
void* shared_variable(const void* identity, size_t bytes);
void* dynamic_shared_memory();

// Error for an address that is not a multiple of `bytes`: the access would fault on a GPU.
void check_aligned(const void* address, size_t bytes, const char* what);

// ---- asynchronous copies: done as late as allowed, or at once (Settings::early_copies) ----
void copy_async(void* destination, const void* source, size_t bytes);  // null source: zeros
void commit_copies();
void wait_copies(const Place& place, int pending_groups);

// ---- starting ----
constexpr size_t kSharedWithoutAsking = 48 << 10;  // bytes of a block, static and dynamic
// Runs the grid now, on this OS thread. Throws fsdp::Error: the kernel's, a deadlock, or more than
// `shared_limit` bytes of shared memory, those by name included. Returns the bytes by name.
size_t run_grid(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& kernel,
                size_t shared_limit = kSharedWithoutAsking, const void* function = nullptr);
// Puts it on a stream. `function`: whose shared memory it is, or null where it has none.
cudaError_t enqueue_grid(cudaStream_t stream, dim3 grid, dim3 block, size_t shared_bytes,
                         std::function<void()> kernel, const void* function = nullptr);
// Dynamic shared memory that a function may be started with from now on.
cudaError_t allow_shared(const void* function, size_t bytes);
// Bytes by name. The compiler of a GPU counts them; here they are known when a grid has run, and
// until then 0.
cudaError_t find_static_shared(const void* function, size_t& bytes);
// How often the emulator has been configured.
int64_t configurations();
// The device's clock, which events read, goes ahead.
void spend(int64_t ns);
// Host code in the place of a kernel: it may wait for other threads.
void enqueue_task(cudaStream_t stream, std::string_view name, std::function<void()> task);

}  // namespace fsdp::emulator
