// Races that the orders of test_cuda_emulator leave right: what is wrong gives the right value in
// each of them, and only the watcher notices. Beside each wrong kernel stands the right one.
// Kernels of kernels/cuda run under the watcher in tests/kernels/cuda, in the same program.
#include <vector>

#include <doctest/doctest.h>

#include "core/error.h"
#include "kernels/cuda/intrinsics.h"
#include "kernels/cuda/launch.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/support/gpu_support.h"

namespace fsdp::cuda {
namespace {

constexpr int kThreads = 128;

struct Result {
  std::vector<float> out;
  std::string error;
};

Result run_kernel(void (*kernel)(float*), int blocks = 1) {
  Result result = {std::vector<float>(size_t{2} * kThreads, 0), ""};
  try {
    emulator::run_grid(dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0,
                       [&] { kernel(result.out.data()); });
  } catch (const Error& error) {
    result.error = error.what();
  }
  return result;
}

// The reordering tests see nothing, the watcher says `expected`.
void check_missed_by_orders(void (*kernel)(float*), const char* expected, int blocks = 1) {
  std::vector<std::vector<float>> results;
  test::on_every_schedule([&] {
    const Result result = run_kernel(kernel, blocks);
    results.push_back(result.out);
    CHECK(result.error.find(expected) == 0);
    CHECK(result.error.find("races_test.cpp:") != std::string::npos);
  });
  for (const std::vector<float>& out : results) CHECK(out == results[0]);
}

void check_clean(void (*kernel)(float*), int blocks = 1) {
  test::on_every_schedule([&] { CHECK(run_kernel(kernel, blocks).error == ""); });
}

// Every warp writes 1: the value of another warp's word is the same.
template <int kOff>
__global__ void read_of_a_warp(float* out) {
  FSDP_SHARED(tile, float[kThreads]);
  tile[threadIdx.x] = 1;
  __syncwarp();
  out[threadIdx.x] = tile[(threadIdx.x / 32 * 32 + kOff + (threadIdx.x + 1) % 32) % kThreads];
}

TEST_CASE("races: an index off by one warp, where the value is equal") {
  check_clean(read_of_a_warp<0>);
  // Where that warp has not run yet the word is unwritten: then orders notice, too.
  const Result result = run_kernel(read_of_a_warp<kThreads - 32>);
  CHECK(result.error.find("race: ") != std::string::npos);
}

// The barrier that keeps the second round's writes from the first one's reads.
template <bool kMoved>
__global__ void tile_used_twice(float* out) {
  FSDP_SHARED(tile, float[kThreads]);
  tile[threadIdx.x] = 2;
  __syncthreads();
  if (kMoved) __syncthreads();
  const float before = tile[(threadIdx.x + 32) % kThreads];
  if (!kMoved) __syncthreads();
  tile[threadIdx.x] = 2;
  __syncthreads();
  out[threadIdx.x] = before + tile[(threadIdx.x + 32) % kThreads];
}

TEST_CASE("races: a barrier moved by one line") {
  check_clean(tile_used_twice<false>);
  check_missed_by_orders(tile_used_twice<true>, "race: ");
}

// The block that comes last adds up what the blocks wrote; out[2] counts those that have come.
template <bool kFence>
__global__ void last_block_adds(float* out) {
  if (threadIdx.x != 0) return;
  out[8 + blockIdx.x] = 3;
  if (kFence) __threadfence();
  const float ticket = atomicAdd(&out[2], 1.0f);
  if (kFence) __threadfence();
  if (ticket + 1 < static_cast<float>(gridDim.x)) return;
  float sum = 0;
  for (unsigned block = 0; block < gridDim.x; ++block) sum += out[8 + block];
  out[0] = sum;
}

TEST_CASE("races: a flag between blocks without its fence") {
  check_clean(last_block_adds<true>, 4);
  check_missed_by_orders(last_block_adds<false>, "race: ", 4);
}

template <bool kOwn>
__global__ void word_of_blocks(float* out) {
  if (threadIdx.x == 0) out[kOwn ? blockIdx.x : 0] = 1;
}

TEST_CASE("races: blocks that write one word, the same value") {
  check_clean(word_of_blocks<true>, 3);
  check_missed_by_orders(word_of_blocks<false>, "race: ", 3);
}

// A shuffle exchanges registers: it orders no memory.
template <bool kBarrier>
__global__ void shuffle_as_barrier(float* out) {
  FSDP_SHARED(tile, float[kThreads]);
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);
  const int other = __shfl_xor_sync(0xffffffffu, static_cast<int>(threadIdx.x), 1);
  if (kBarrier) __syncwarp();
  out[threadIdx.x] = tile[other];
}

TEST_CASE("races: a shuffle in the place of a barrier") {
  check_clean(shuffle_as_barrier<true>);
  check_missed_by_orders(shuffle_as_barrier<false>, "race: ");
}

// A copy that others read is awaited before they meet, not after.
template <bool kLate>
__global__ void awaited_copy(float* out) {
  FSDP_SHARED(tile, float[kThreads * 4]);
  float* const own = &tile[threadIdx.x * 4];
  cp_async_16(own, out + kThreads / 4 * 4);
  cp_async_commit();
  if (!kLate) cp_async_wait<0>();
  __syncthreads();
  const float other = tile[(threadIdx.x + 1) % kThreads * 4];
  if (kLate) cp_async_wait<0>();
  __syncthreads();
  out[threadIdx.x] = other;
}

TEST_CASE("races: a copy awaited after the barrier") {
  check_clean(awaited_copy<false>);
  const Result late = run_kernel(awaited_copy<true>);
  CHECK(late.error.find("race: ") != std::string::npos);
}

__global__ void half_of_a_tile(float* out) {
  FSDP_SHARED(tile, float[kThreads]);
  if (threadIdx.x % 2 == 0) tile[threadIdx.x] = 5;
  __syncthreads();
  const float other = tile[threadIdx.x ^ 1];
  out[threadIdx.x] = __shfl_sync(0xffffffffu, other, static_cast<int>(threadIdx.x % 32 | 1));
}

TEST_CASE("races: shared memory that nobody wrote, read and thrown away") {
  check_missed_by_orders(half_of_a_tile, "unwritten: ");
}

}  // namespace
}  // namespace fsdp::cuda
