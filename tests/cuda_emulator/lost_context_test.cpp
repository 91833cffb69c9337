// After a kernel has failed every call of the runtime, the driver and the libraries fails, as on a
// GPU: what the stand-in does then, and that the error of the operation reaches the host all the
// same, through destructors that release memory. The program's commands: lost_context.sh.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include "core/trace.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_devices.h"
#include "tests/cuda_emulator/emulator.h"

namespace fsdp::test {
namespace {

using cuda::CudaBackend;

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

emulator::Settings with_fault(int64_t kernel, bool sticky = true) {
  emulator::Settings settings = emulator::settings();
  settings.faulty_kernel = kernel;
  settings.sticky = sticky;
  return settings;
}

// A sum into new memory, which the kernel writes.
Tensor sum(CudaBackend& gpu, const Tensor& x) {
  Tensor out = Tensor::empty(gpu, x.shape(), x.dtype());
  gpu.run(gpu.compute_stream(), AddArgs{x, x, out});
  return out;
}

constexpr const char* kFault = "an illegal memory access was encountered";

TEST_CASE("a kernel that failed loses the context, until the emulator is configured anew") {
  for (const bool sticky : {true, false}) {
    const emulator::Configured configured(with_fault(2, sticky));
    CudaBackend gpu;
    const Tensor x = Tensor::zeros(gpu, {3}, DType::kF32);
    sum(gpu, x);
    gpu.synchronize(gpu.compute_stream());
    const std::string first = error_of([&] {
      sum(gpu, x);
      gpu.synchronize(gpu.compute_stream());
    });
    CHECK(first.find(kFault) != std::string::npos);
    const std::string second = error_of([&] { sum(gpu, x); });
    CHECK((second.find(kFault) != std::string::npos) == sticky);
    CHECK(error_of([&] { gpu.synchronize(gpu.compute_stream()); }).empty() != sticky);
  }
}

// Of an error that counts as one of the machine.
std::string device_error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const cuda::DeviceError& error) {
    return error.what();
  }
  return "";
}

// Makes kernel 1 fail, and waits for that.
void lose_context(CudaBackend& gpu) {
  sum(gpu, Tensor::zeros(gpu, {3}, DType::kF32));
  CHECK_FALSE(error_of([&] { gpu.synchronize(gpu.compute_stream()); }).empty());
}

TEST_CASE("a gate that the driver refuses tells of the fault, as a call of the runtime does") {
  const emulator::Configured configured(with_fault(1));
  CudaBackend gpu;
  cpu::CpuBackend host;
  const EventPtr done = host.record(host.compute_stream());
  lose_context(gpu);
  const std::string told = device_error_of([&] { gpu.wait(gpu.compute_stream(), done); });
  CHECK(told.starts_with("[cuda] cuStreamWaitValue32: cudaErrorLaunchFailure: "));
  CHECK(told.find(kFault) != std::string::npos);
}

// Without the library's handle, and with it from a call before: what the call is refused by.
TEST_CASE("cuBLASLt tells of the fault, and not of a status of its own") {
  for (const auto& [began, call] : {std::pair(false, "Create"), {true, "MatmulAlgoGetHeuristic"}}) {
    const emulator::Configured configured(with_fault(began ? 2 : 1));
    (void)cudaGetLastError();  // of the context before
    CudaBackend gpu;
    const auto multiply = [&gpu](const Tensor& a, Tensor& c) {
      gpu.run(gpu.compute_stream(), MatmulArgs{a, a, c});
    };
    const Tensor a = Tensor::zeros(gpu, {4, 4}, DType::kF32),
                 first = Tensor::zeros(gpu, {8, 8}, DType::kF32);
    Tensor c = Tensor::zeros(gpu, a.shape(), DType::kF32),
           first_c = Tensor::zeros(gpu, first.shape(), DType::kF32);
    if (began) multiply(first, first_c);
    lose_context(gpu);
    const std::string told = device_error_of([&] { multiply(a, c); });
    CHECK(told.starts_with(std::string("[cuda] cublasLt") + call + ": "));
    CHECK(told.find(kFault) != std::string::npos);
  }
}

TEST_CASE("cuDNN tells of the fault, and not of a status of its own") {
  for (const auto& [began, call] : {std::pair(false, "Create"), {true, "BackendFinalize"}}) {
    const emulator::Configured configured(with_fault(began ? 2 : 1));
    (void)cudaGetLastError();  // of the context before
    CudaBackend gpu({.attention = cuda::AttentionChoice::kCudnn});
    const auto attend = [&gpu](const Tensor& q, Tensor& out, Tensor& log_sum_exp) {
      const HeadView view = {&q, 1, 8, 0, 8};
      const AttentionArgs in = {.q = view, .k = view, .v = view, .scale = 1, .dropout = {}};
      gpu.run(gpu.compute_stream(), AttentionForwardArgs{in, out, log_sum_exp});
    };
    const auto zeros = [&gpu](const Shape& shape, DType dtype) {
      return Tensor::zeros(gpu, shape, dtype);
    };
    const Tensor q = zeros({1, 128, 8}, DType::kBF16), first = zeros({1, 64, 8}, DType::kBF16);
    Tensor out = zeros(q.shape(), DType::kBF16), first_out = zeros(first.shape(), DType::kBF16);
    Tensor sums = zeros({1, 1, 128}, DType::kF32), first_sums = zeros({1, 1, 64}, DType::kF32);
    if (began) attend(first, first_out, first_sums);
    lose_context(gpu);
    const std::string told = device_error_of([&] { attend(q, out, sums); });
    CHECK(told.starts_with(std::string("[cuda] cudnn") + call + ": "));
    CHECK(told.find(kFault) != std::string::npos);
  }
}

TEST_CASE("the error of an operation passes destructors that release memory and end spans") {
  for (const bool traced : {false, true}) {
    const emulator::Configured configured(with_fault(1));
    Trace trace;
    CudaBackend gpu;
    const Tensor x = Tensor::zeros(gpu, {3}, DType::kF32);
    if (traced) gpu.set_trace(&trace);
    const std::string error = error_of([&] {
      const Tensor y = sum(gpu, x);
      for (int i = 0; i < 100000; ++i) sum(gpu, y);  // until one of them meets the fault
    });
    CHECK(error.starts_with("["));
    CHECK(error.find(kFault) != std::string::npos);
    gpu.set_trace(nullptr);
  }
}

TEST_CASE("a release that fails does not throw: the next host wait tells of it") {
  CudaBackend gpu;
  Stream& stream = gpu.compute_stream();
  float stranger = 0;
  gpu.ledger().add(MemoryCategory::kWorkspace, sizeof stranger);
  gpu.release(stream, &stranger, sizeof stranger, MemoryCategory::kWorkspace);
  CHECK(error_of([&] { gpu.synchronize(stream); }) ==
        "release: [cuda] cudaFreeAsync: cudaErrorInvalidValue: cudaErrorInvalidValue");
  gpu.synchronize(stream);  // told once
}

}  // namespace
}  // namespace fsdp::test
