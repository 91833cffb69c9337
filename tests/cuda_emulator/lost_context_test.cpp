// After a kernel has failed every call of the runtime fails, as on a GPU: what the stand-in does
// then, and that the error of the operation reaches the host all the same, through destructors that
// release memory. The program's commands: lost_context.sh.
#include <doctest/doctest.h>

#include "core/trace.h"
#include "kernels/cuda/cuda_backend.h"
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

TEST_CASE("a gate that the driver refuses tells of the fault, as a call of the runtime does") {
  const emulator::Configured configured(with_fault(1));
  CudaBackend gpu;
  cpu::CpuBackend host;
  const EventPtr done = host.record(host.compute_stream());
  sum(gpu, Tensor::zeros(gpu, {3}, DType::kF32));
  error_of([&] { gpu.synchronize(gpu.compute_stream()); });
  std::string told;
  try {
    gpu.wait(gpu.compute_stream(), done);
  } catch (const cuda::DeviceError& error) {
    told = error.what();
  }
  CHECK(told.starts_with("[cuda] cuStreamWaitValue32: cudaErrorLaunchFailure: "));
  CHECK(told.find(kFault) != std::string::npos);
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
