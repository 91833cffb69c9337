// What the tests of the CUDA backend share. The same sources run on a GPU (test_gpu) and on the
// emulator (test_cuda_emulator), there once for every order of threads and blocks.
#pragma once

#include <cstdio>
#include <functional>

#include <doctest/doctest.h>

#include "kernels/cuda/cuda_backend.h"
#include "tests/support/kernel_support.h"

namespace fsdp::test {

// Runs `body` once for every way of scheduling: tests/cuda_emulator/schedules.cpp has several;
// tests/kernels/cuda/schedules.cpp (a real GPU) runs it twice.
void on_every_schedule(const std::function<void()>& body);

constexpr DType kGpuTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
// Around vectors of 16 bytes, warps and blocks.
constexpr int64_t kGpuSizes[] = {0, 1, 7, 8, 31, 257, 2049, 5000};

inline bool emulated(const cuda::CudaBackend& gpu) { return gpu.device().name == "emulated GPU"; }

// body(gpu) on a fresh backend for every schedule. Skips without a GPU.
inline void on_gpu(const std::function<void(cuda::CudaBackend&)>& body,
                   const cuda::CudaOptions& options = {}) {
  cuda::set_up_environment();  // as launch() does
  if (const cuda::DeviceCount count = cuda::count_devices(); count.devices == 0) {
    std::printf("[SKIP] no GPU: %s\n", count.reason.c_str());
    return;
  }
  on_every_schedule([&] {
    cuda::CudaBackend gpu(options);
    body(gpu);
  });
}

// run(backend) -> several results. They must be those of the CPU backend: |gpu - cpu| at most
// `roundings` units of the dtype (and a few of f32) relative to |cpu| + floor.
template <typename Run>
void check_against_cpu(cuda::CudaBackend& gpu, DType dtype, Run run, double roundings = 1,
                       double floor = 1) {
  cpu::CpuBackend cpu;
  const std::vector<Values> actual = run(gpu), expected = run(cpu);
  REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const double limit = roundings * 2 * unit_roundoff(dtype) + 16 * unit_roundoff(DType::kF32);
    CAPTURE(name_of(dtype));
    CAPTURE(i);
    CAPTURE(actual[i].size());
    CHECK(largest_error(actual[i], expected[i], floor) <= limit);
  }
}

// A tensor whose first element lies `offset` elements into its storage: not aligned to 16 bytes.
inline Tensor shifted_tensor(Backend& backend, Shape shape, DType dtype, const Values& values,
                             int64_t offset = 1) {
  Values padded(static_cast<size_t>(offset), 0.0);
  padded.insert(padded.end(), values.begin(), values.end());
  const Tensor whole = make_tensor(backend, {int64_t(padded.size())}, dtype, padded);
  return whole.slice(offset, shape);
}

}  // namespace fsdp::test
