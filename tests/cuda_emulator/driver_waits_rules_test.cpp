// The calls of the emulated driver that wait for streams, one by one: emulator.h, DriverWaits. And
// its pool, which keeps what is too small (pool.h).
#include <functional>
#include <thread>

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/intrinsics.h"
#include "kernels/cuda/launch.h"
#include "tests/cuda_emulator/emulator.h"

namespace fsdp::cuda {
namespace {

using emulator::DriverWaits;

constexpr size_t kBytes = 4096;
template <int kWhich>
__global__ void nothing(float*) {}

// Whether what the stream of `gpu` has to do is done when `call` returns.
bool waits(DriverWaits mode, CudaBackend& gpu, const std::function<void()>& call) {
  emulator::Settings settings = emulator::settings();
  settings.driver_waits = mode;
  const emulator::Configured configured(settings);
  Stream& stream = gpu.compute_stream();
  gpu.host_task(stream, "slow", 0,
                [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  const EventPtr done = gpu.record(stream);
  call();
  const bool waited = done->ready();
  gpu.synchronize(stream);
  return waited;
}

template <int kWhich>
void launch_first(CudaBackend& gpu) {
  const Op op(gpu, gpu.compute_stream(), "probe");
  launch(nothing<kWhich>, 1, 1, 0, op, nullptr);
}

TEST_CASE("memory, pinned memory and the first handle of cuBLASLt wait for streams") {
  CudaBackend gpu;
  for (const auto& [mode, expected] : {std::pair{DriverWaits::kNever, false},
                                       {DriverWaits::kForOwn, true},
                                       {DriverWaits::kForAll, true}}) {
    CAPTURE(static_cast<int>(mode));
    void *memory = nullptr, *pinned = nullptr;
    lt::Handle handle = nullptr;
    CHECK(waits(mode, gpu, [&] { cudaMalloc(&memory, kBytes); }) == expected);
    CHECK(waits(mode, gpu, [&] { cudaFree(memory); }) == expected);
    CHECK(waits(mode, gpu, [&] { cudaMallocHost(&pinned, kBytes); }) == expected);
    CHECK(waits(mode, gpu, [&] { cudaFreeHost(pinned); }) == expected);
    CHECK(waits(mode, gpu, [&] { lt::library().create(&handle); }) == expected);
    lt::library().destroy(handle);
  }
}

TEST_CASE("the first start of a kernel waits for streams, the next does not") {
  CudaBackend gpu;
  CHECK(!waits(DriverWaits::kNever, gpu, [&] { launch_first<0>(gpu); }));
  CHECK(waits(DriverWaits::kForAll, gpu, [&] { launch_first<1>(gpu); }));
  CHECK(!waits(DriverWaits::kForAll, gpu, [&] { launch_first<1>(gpu); }));
  CHECK(waits(DriverWaits::kForOwn, gpu, [&] { launch_first<2>(gpu); }));
  std::thread([&] {  // of another rank, which loads its own
    CudaBackend other;
    CHECK(waits(DriverWaits::kForOwn, other, [&] { launch_first<2>(other); }));
  })
      .join();
}

TEST_CASE("a rank with a GPU of its own waits for its own streams, its workers for all") {
  CudaBackend gpu;
  void* pinned = nullptr;
  const auto call_elsewhere = [&](bool makes_stream) {
    std::thread([&] {
      std::unique_ptr<CudaBackend> own;
      if (makes_stream) own = std::make_unique<CudaBackend>();
      cudaMallocHost(&pinned, kBytes);
    }).join();
  };
  CHECK(waits(DriverWaits::kForOwn, gpu, [&] { call_elsewhere(false); }));
  cudaFreeHost(pinned);
  std::unique_ptr<CudaBackend> other;
  emulator::Settings settings = emulator::settings();
  settings.driver_waits = DriverWaits::kForOwn;
  const emulator::Configured configured(settings);
  std::thread([&] {
    other = std::make_unique<CudaBackend>();
    CHECK(!waits(DriverWaits::kForOwn, gpu, [&] { cudaMallocHost(&pinned, kBytes); }));
  }).join();
  cudaFreeHost(pinned);
}

TEST_CASE("small blocks that went back serve no large allocation until the pool is trimmed") {
  emulator::Settings settings = emulator::settings();
  settings.memory = 4 * kBytes;
  const emulator::Configured configured(settings);
  CudaBackend gpu;
  gpu.give_back_unused();  // of other tests
  auto* const stream = static_cast<cudaStream_t>(gpu.compute_stream().native_handle());
  void* blocks[3] = {};
  for (void*& block : blocks) CHECK(cudaMallocAsync(&block, kBytes, stream) == cudaSuccess);
  for (void* block : blocks) CHECK(cudaFreeAsync(block, stream) == cudaSuccess);
  void* large = nullptr;
  CHECK(cudaMallocAsync(&large, 2 * kBytes, stream) == cudaErrorMemoryAllocation);
  CHECK(cudaMallocAsync(&large, kBytes, stream) == cudaSuccess);
  CHECK(cudaFreeAsync(large, stream) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(cudaMemPoolTrimTo(nullptr, 0) == cudaSuccess);
  CHECK(cudaMallocAsync(&large, 2 * kBytes, stream) == cudaSuccess);
  CHECK(cudaFreeAsync(large, stream) == cudaSuccess);
  (void)cudaGetLastError();
}

}  // namespace
}  // namespace fsdp::cuda
