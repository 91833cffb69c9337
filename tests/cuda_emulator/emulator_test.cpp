// The emulator itself: it computes what a GPU would, and it notices what a GPU would leave to
// chance: a missing barrier of a block or a warp, a missing wait for a copy, an element nobody
// writes, threads that do not meet, shared memory nobody has written, an access beyond (under
// AddressSanitizer).
#include "tests/cuda_emulator/emulator.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include <doctest/doctest.h>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/intrinsics.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "tests/support/gpu_support.h"

namespace fsdp::cuda {
namespace {

using emulator::ThreadOrder;

constexpr int kThreads = 128;

template <typename T>
std::vector<T> run_kernel(void (*kernel)(T*), int outputs, int blocks = 1, int threads = kThreads,
                          size_t shared = 0) {
  std::vector<T> out(static_cast<size_t>(outputs), T(-7));
  emulator::run_grid(dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads)),
                     shared, [&] { kernel(out.data()); });
  return out;
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// How many of several orders give `expected` when barriers are left out (or not).
template <typename T>
bool right_in_every_order(void (*kernel)(T*), const std::vector<T>& expected, bool leave_out,
                          size_t shared = 0) {
  bool right = true;
  for (const ThreadOrder order :
       {ThreadOrder::kForward, ThreadOrder::kReverse, ThreadOrder::kRandom}) {
    emulator::Settings settings;
    settings.order = order;
    settings.seed = 3;
    if (leave_out) settings.leave_out = [](const std::string&) { return true; };
    const emulator::Configured configured(settings);
    right &= run_kernel(kernel, static_cast<int>(expected.size()), 1, kThreads, shared) == expected;
  }
  return right;
}

__global__ void reversed_in_block(float* out) {
  FSDP_SHARED(tile, float[kThreads]);
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);
  __syncthreads();
  out[threadIdx.x] = tile[kThreads - 1 - threadIdx.x];
}

__global__ void shared_memory_used_twice(float* out) {  // the second barrier guards the reuse
  FSDP_SHARED(tile, float[kThreads]);
  out[threadIdx.x] = 0;
  for (int round = 0; round < 3; ++round) {
    tile[threadIdx.x] = static_cast<float>(round * 1000 + static_cast<int>(threadIdx.x));
    __syncthreads();
    out[threadIdx.x] += tile[(threadIdx.x + 1) % kThreads];
    __syncthreads();
  }
}

__global__ void reversed_in_warp(float* out) {
  FSDP_SHARED(tile, float[kThreads]);
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);
  __syncwarp();
  out[threadIdx.x] = tile[threadIdx.x ^ 31u];
}

__global__ void copied_to_shared(float* out) {
  float* tile = dynamic_shared<float>();
  cp_async_16(tile + 4 * threadIdx.x, out + 4 * threadIdx.x);
  cp_async_commit();
  cp_async_wait<0>();
  for (int i = 0; i < 4; ++i)
    out[4 * threadIdx.x + static_cast<unsigned>(i)] = tile[4 * threadIdx.x] + 1;
}

TEST_CASE("a removed block barrier is noticed") {
  std::vector<float> expected;
  for (int i = 0; i < kThreads; ++i) expected.push_back(static_cast<float>(kThreads - 1 - i));
  CHECK(right_in_every_order(reversed_in_block, expected, false));
  CHECK_FALSE(right_in_every_order(reversed_in_block, expected, true));
  for (int i = 0; i < kThreads; ++i) {
    expected[static_cast<size_t>(i)] = static_cast<float>(3000 + 3 * ((i + 1) % kThreads));
  }
  const std::vector<std::string> before = emulator::places();
  CHECK(right_in_every_order(shared_memory_used_twice, expected, false));
  // either of the two alone
  const std::vector<std::string> after = emulator::places();
  std::vector<std::string> places;
  std::set_difference(after.begin(), after.end(), before.begin(), before.end(),
                      std::back_inserter(places));
  REQUIRE(places.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    bool right = true;
    for (const ThreadOrder order : {ThreadOrder::kForward, ThreadOrder::kReverse}) {
      emulator::Settings settings;
      settings.order = order;
      settings.leave_out = [&](const std::string& place) { return place == places[i]; };
      const emulator::Configured configured(settings);
      right &= run_kernel(shared_memory_used_twice, kThreads) == expected;
    }
    CHECK_FALSE_MESSAGE(right, places[i]);
  }
}

// Warps that are ahead must not write into the sums that others still read.
__global__ void sums_one_after_another(float* out) {
  float total = 0;
  for (int i = 0; i < 3; ++i) {
    total += block_reduce<kThreads>(i == 1 ? 0.0f : static_cast<float>(threadIdx.x));
  }
  out[threadIdx.x] = total;
}

TEST_CASE("sums of a block one after another") {
  const std::vector<float> expected(kThreads, kThreads * (kThreads - 1));
  CHECK(right_in_every_order(sums_one_after_another, expected, false));
}

TEST_CASE("a removed warp barrier and a removed wait for a copy are noticed") {
  std::vector<float> expected;
  for (int i = 0; i < kThreads; ++i) expected.push_back(static_cast<float>(i ^ 31));
  CHECK(right_in_every_order(reversed_in_warp, expected, false));
  CHECK_FALSE(right_in_every_order(reversed_in_warp, expected, true));
  const std::vector<float> copied(4 * kThreads, -6.0f);
  CHECK(right_in_every_order(copied_to_shared, copied, false, 16 * kThreads));
  CHECK_FALSE(right_in_every_order(copied_to_shared, copied, true, 16 * kThreads));
}

__global__ void not_all_come(float* out) {
  if (threadIdx.x == 5) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}

__global__ void not_all_shuffle(float* out) {
  out[threadIdx.x] = threadIdx.x < 3 ? 0.0f : __shfl_xor_sync(0xffffffffu, 1.0f, 1);
}

__global__ void wrong_mask(float* out) { out[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, 1.0f, 1); }

TEST_CASE("threads that do not meet are an error, and the next kernel runs") {
  CHECK(error_of([] { run_kernel(not_all_come, kThreads); }) ==
        "[emulator] block (0, 0, 0) of 128 threads cannot go on: 1 have returned; 127 wait at "
        "__syncthreads;");
  CHECK(error_of([] {
          run_kernel(not_all_shuffle, 32, 1, 32);
        }).find("29 wait at __shfl_xor_sync") != std::string::npos);
  CHECK(error_of([] {
          run_kernel(wrong_mask, 32, 1, 32);
        }).find("is not in its own mask 0000ffff") != std::string::npos);
  CHECK(run_kernel(reversed_in_block, kThreads)[0] == kThreads - 1);
}

__global__ void uninitialised(float* out) {
  FSDP_SHARED(tile, float[kThreads]);
  out[threadIdx.x] = threadIdx.x == 0 ? tile[0] : 0.0f;
  tile[threadIdx.x] = 5;  // the next block must not see it
}

TEST_CASE("shared memory, fresh memory and outputs hold NaN until written") {
  CHECK(std::isnan(run_kernel(uninitialised, kThreads, 3)[0]));
  CudaBackend gpu;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    for (const double value : Tensor::empty(gpu, {17}, dtype).to_doubles())
      CHECK(std::isnan(value));
  }
}

__global__ void kilobyte_by_name(float* out) {
  FSDP_SHARED(tile, float[256]);
  tile[0] = 1;
  *out = tile[0];
}

TEST_CASE("shared memory by name counts, and what is beyond 48 KiB must have been asked for") {
  constexpr size_t kByName = 1 << 10, kUnasked = 48 << 10;
  CHECK(run_kernel(kilobyte_by_name, 1, 1, 1, kUnasked - kByName)[0] == 1);
  CHECK(error_of([] { run_kernel(kilobyte_by_name, 1, 1, 1, kUnasked); }) ==
        "[emulator] shared memory: a block has 1024 bytes by name and 49152 by the launch, which "
        "may have 49152 together");

  CudaBackend gpu;
  Tensor x = Tensor::zeros(gpu, {}, DType::kF32);
  const Op op(gpu, gpu.compute_stream(), "probe");
  const auto start = [&](size_t bytes) {
    return start_kernel(kilobyte_by_name, dim3(1), dim3(1), bytes, op.stream(), x.data_as<float>());
  };
  const auto launch_with = [&](size_t bytes) {
    launch(kilobyte_by_name, 1, 1, bytes, op, x.data_as<float>());
  };
  CHECK(start(kUnasked + 1) == cudaErrorInvalidValue);
  launch_with(kUnasked);
  CHECK(x.item() == 1);
  CHECK(start(kUnasked + 1) == cudaErrorInvalidValue);  // more than launch() asked for
  const size_t largest = gpu.device().shared_per_block - kByName;
  CHECK_NOTHROW(launch_with(largest));
  CHECK(allow_shared(kilobyte_by_name, largest + 1) == cudaErrorInvalidValue);
  CHECK(error_of([&] { launch_with(largest + 1); }) ==
        "[probe] shared memory: a block needs 232449 bytes, emulated GPU gives it 232448 at most");
  cudaGetLastError();
}

__global__ void warp_functions(float* out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float sum = static_cast<float>(lane);
  for (int bits = 16; bits > 0; bits /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bits);
  const int down = __shfl_down_sync(0xffffffffu, lane, 3),
            up = __shfl_up_sync(0xffffffffu, lane, 3);
  const int segment = __shfl_sync(0xffffffffu, lane, 2, 8);
  const unsigned odd = __ballot_sync(0xffffffffu, lane % 2);
  const bool right =
      sum == 496 && down == (lane < 29 ? lane + 3 : lane) && up == (lane > 2 ? lane - 3 : lane) &&
      segment == lane / 8 * 8 + 2 && odd == 0xaaaaaaaau && __any_sync(0xffffffffu, lane == 4) &&
      !__all_sync(0xffffffffu, lane == 4) && __reduce_add_sync(0xffffffffu, lane) == 496;
  out[threadIdx.x] = right ? 1.0f : 0.0f;
}

__global__ void block_functions(float* out) {
  const bool right = __syncthreads_count(threadIdx.x % 4 == 0) == 32 &&
                     __syncthreads_or(threadIdx.x == 77) && !__syncthreads_and(threadIdx.x == 77);
  atomicAdd(&out[blockIdx.x], right ? 1.0f : 0.0f);
}

TEST_CASE("shuffles, votes, counts, atomics") {
  CHECK(right_in_every_order(warp_functions, std::vector<float>(kThreads, 1.0f), false));
  const std::vector<float> counted = run_kernel(block_functions, 2, 2);
  CHECK(counted == std::vector<float>(2, kThreads - 7.0f));
}

__global__ void reduce_twice(float* out) {
  const float sum = block_reduce<kThreads>(static_cast<float>(threadIdx.x));
  const float largest = block_reduce<kThreads, Maximum>(static_cast<float>(threadIdx.x % 100));
  out[threadIdx.x] = sum + largest;
}

TEST_CASE("a reduction over a block gives every thread the result, and needs its barriers") {
  const std::vector<float> expected(kThreads, 127 * 64 + 99);
  CHECK(right_in_every_order(reduce_twice, expected, false));
  CHECK_FALSE(right_in_every_order(reduce_twice, expected, true));
}

// One warp: c (16, 8) = a (16, 16) b (16, 8), operands through ldmatrix as a GPU's documentation
// has it.
template <typename T>
__global__ void multiply(const T* a, const T* b, float* c) {
  FSDP_SHARED(a_tile, T[16][16]);
  FSDP_SHARED(b_tile, T[16][8]);
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 256; i += 32) a_tile[i / 16][i % 16] = a[i];
  for (int i = lane; i < 128; i += 32) b_tile[i / 8][i % 8] = b[i];
  __syncwarp();
  uint32_t a_fragment[4], b_pair[4];
  // matrices (0, 0), (8, 0), (0, 8), (8, 8) of a
  ldmatrix_x4(a_fragment, &a_tile[lane % 16][lane / 16 * 8]);
  // both halves of b, transposed: its rows are k
  ldmatrix_x4_transposed(b_pair, &b_tile[lane % 16][0]);
  const uint32_t b_fragment[2] = {b_pair[0], b_pair[1]};
  float d[4] = {100, 100, 100, 100};
  mma_m16n8k16<T>(d, a_fragment, b_fragment);
  const int g = lane / 4, t = lane % 4;
  for (int r = 0; r < 4; ++r) c[(g + r / 2 * 8) * 8 + 2 * t + r % 2] = d[r];
}

template <typename T>
void check_multiply(float (*widen)(T), T (*narrow)(float)) {
  const test::Values a = test::random_values(256, 1), b = test::random_values(128, 2);
  std::vector<T> a_values, b_values;
  for (const double x : a) a_values.push_back(narrow(static_cast<float>(x)));
  for (const double x : b) b_values.push_back(narrow(static_cast<float>(x)));
  std::vector<float> c(128, NAN);
  emulator::run_grid(dim3(1), dim3(32), 0,
                     [&] { multiply<T>(a_values.data(), b_values.data(), c.data()); });
  for (size_t i = 0; i < 16; ++i) {
    for (size_t j = 0; j < 8; ++j) {
      double expected = 100;
      for (size_t k = 0; k < 16; ++k) {
        expected += double(widen(a_values[i * 16 + k])) * double(widen(b_values[k * 8 + j]));
      }
      CHECK(std::abs(c[i * 8 + j] - expected) < 1e-4);
    }
  }
}

TEST_CASE("tensor cores multiply matrices that ldmatrix has loaded") {
  check_multiply<__nv_bfloat16>([](__nv_bfloat16 x) { return __bfloat162float(x); },
                                [](float x) { return __float2bfloat16_rn(x); });
  check_multiply<__half>([](__half x) { return __half2float(x); },
                         [](float x) { return __float2half_rn(x); });
}

__global__ void fail_in_one_thread(float*) {
  if (threadIdx.x == 9) fail("thread 9 gives up");
  __syncthreads();
}

TEST_CASE("a failing kernel reaches the host with its operation") {
  const emulator::Configured configured(emulator::settings());
  CudaBackend gpu;
  {
    const Op op(gpu, gpu.compute_stream(), "probe");
    launch(fail_in_one_thread, 1, kThreads, 0, op, nullptr);
  }
  CHECK(error_of([&] { gpu.synchronize(gpu.compute_stream()); }).find("thread 9 gives up") !=
        std::string::npos);
  const Op op(gpu, gpu.compute_stream(), "probe");
  const std::string message =
      error_of([&] { launch(fail_in_one_thread, 1, 2000, 0, op, nullptr); });
  CHECK(message.starts_with("[probe] launch: cudaErrorInvalidConfiguration: "));
  CHECK(message.find("emulator_test.cpp:") != std::string::npos);
}

__global__ void write_one(float* out) { *out = 1; }

// A kernel of one stream reads what one of another writes.
float read_across(bool edge) {
  emulator::Settings settings;
  settings.delay = [](const std::string& stream, std::string_view task) {
    // Longer than a busy machine keeps the host from enqueueing the copy.
    return task == "kernel" && stream.find("high") == std::string::npos ? 100000 : 0;
  };
  if (!edge) {
    settings.ignore_wait = [](const std::string& waiting, const std::string&) {
      return waiting.find("gpu-high") != std::string::npos;
    };
  }
  const emulator::Configured configured(settings);
  CudaBackend gpu;
  Tensor x = Tensor::zeros(gpu, {}, DType::kF32), y = Tensor::zeros(gpu, {}, DType::kF32);
  gpu.synchronize(gpu.compute_stream());
  const auto side = gpu.create_stream("side");
  {
    const Op op(gpu, gpu.compute_stream(), "probe");
    launch(write_one, 1, 1, 0, op, x.data_as<float>());
  }
  gpu.wait(*side, gpu.record(gpu.compute_stream()));
  gpu.copy(*side, y.data(), x.data(), y.bytes());
  gpu.wait(gpu.compute_stream(), gpu.record(*side));
  gpu.synchronize(*side);
  return static_cast<float>(y.item());
}

TEST_CASE("a removed stream edge is noticed") {
  CHECK(read_across(true) == 1);
  CHECK(read_across(false) == 0);
}

// Not run by default: under AddressSanitizer this ends the program, which shows that it sees
// kernels. test_cuda_emulator --no-skip --test-case="*writes beyond*"
__global__ void write_beyond(float* out) { out[threadIdx.x + 1] = 1; }
TEST_CASE("a kernel that writes beyond its allocation" * doctest::skip()) {
  CudaBackend gpu;
  Tensor x = Tensor::empty(gpu, {kThreads}, DType::kF32);
  const Op op(gpu, gpu.compute_stream(), "probe");
  launch(write_beyond, 1, kThreads, 0, op, x.data_as<float>());
  gpu.synchronize(gpu.compute_stream());
}

}  // namespace
}  // namespace fsdp::cuda
