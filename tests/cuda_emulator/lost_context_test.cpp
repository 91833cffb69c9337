// After a kernel has failed every call of the runtime, the driver and the libraries fails, as on a
// GPU: what the stand-in does then, and that the error of the operation reaches the host all the
// same, through destructors that release memory. The program's commands: lost_context.sh.
#include <cstring>

#include <doctest/doctest.h>

#include "core/layer_args.h"
#include "core/machine_error.h"
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

// Of an error that counts as one of the machine.
std::string machine_error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const MachineError& error) {
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
  const std::string told = machine_error_of([&] { gpu.wait(gpu.compute_stream(), done); });
  CHECK(told.starts_with("[cuda] cuStreamWaitValue32: cudaErrorLaunchFailure: "));
  CHECK(told.find(kFault) != std::string::npos);
}

// How far a library had come when the context was lost.
enum class Begun : uint8_t { kNothing, kHandle, kPlan };

struct Stage {
  Begun begun;
  const char* told;
};

TEST_CASE("cuBLASLt tells of the fault, and not of a status of its own") {
  for (const Stage& stage : {Stage{Begun::kNothing, "[cuda] cublasLtCreate: "},
                             Stage{Begun::kHandle, "[cuda] cublasLtMatmulAlgoGetHeuristic: "},
                             Stage{Begun::kPlan, "[cuda] cudaMallocAsync: "}}) {
    const emulator::Configured configured(with_fault(stage.begun == Begun::kNothing ? 1 : 2));
    CudaBackend gpu;
    const auto zeros = [&gpu](int64_t n) { return Tensor::zeros(gpu, {n, n}, DType::kF32); };
    const Tensor small = zeros(4), large = zeros(8);
    Tensor small_out = zeros(4), large_out = zeros(8);
    const auto multiply = [&gpu](const Tensor& a, Tensor& c) {
      gpu.run(gpu.compute_stream(), MatmulArgs{a, a, c});
    };
    if (stage.begun == Begun::kHandle) multiply(small, small_out);
    if (stage.begun == Begun::kPlan) multiply(large, large_out);
    lose_context(gpu);
    const std::string told = machine_error_of([&] { multiply(large, large_out); });
    CHECK(told.substr(0, std::strlen(stage.told)) == stage.told);
    CHECK(told.find(kFault) != std::string::npos);
  }
}

TEST_CASE("cuDNN tells of the fault, and not of a status of its own") {
  using cuda::AttentionChoice;
  for (const AttentionChoice choice : {AttentionChoice::kAuto, AttentionChoice::kCudnn}) {
    for (const Stage& stage : {Stage{Begun::kNothing, "[cuda] cudnnCreate: "},
                               Stage{Begun::kHandle, "[cuda] cuDNN's plan: "},
                               Stage{Begun::kPlan, "[cuda] cudaMallocAsync: "}}) {
      const emulator::Configured configured(with_fault(stage.begun == Begun::kNothing ? 1 : 2));
      CudaBackend gpu({.attention = choice});
      const auto attend = [&gpu](const Tensor& q, Tensor& out, Tensor& log_sum_exp) {
        const HeadView view = {&q, 1, 8, 0, 8};
        const AttentionArgs in = {.q = view, .k = view, .v = view, .scale = 1, .dropout = {}};
        gpu.run(gpu.compute_stream(), AttentionForwardArgs{in, out, log_sum_exp});
      };
      const auto zeros = [&gpu](const Shape& shape, DType dtype) {
        return Tensor::zeros(gpu, shape, dtype);
      };
      const Tensor few = zeros({1, 64, 8}, DType::kBF16), many = zeros({1, 128, 8}, DType::kBF16);
      Tensor few_out = zeros(few.shape(), DType::kBF16), few_sums = zeros({1, 1, 64}, DType::kF32);
      Tensor out = zeros(many.shape(), DType::kBF16), sums = zeros({1, 1, 128}, DType::kF32);
      if (stage.begun == Begun::kHandle) attend(few, few_out, few_sums);
      if (stage.begun == Begun::kPlan) attend(many, out, sums);
      lose_context(gpu);
      const std::string told = machine_error_of([&] { attend(many, out, sums); });
      CHECK(told.substr(0, std::strlen(stage.told)) == stage.told);
      CHECK(told.find(kFault) != std::string::npos);
    }
  }
}

TEST_CASE("a fault that a stream of the host meets stays one of the machine") {
  const emulator::Configured configured(with_fault(1));
  CudaBackend gpu;
  cpu::CpuBackend host;
  const EventPtr recorded = gpu.record(gpu.compute_stream());
  lose_context(gpu);
  host.wait(host.compute_stream(), recorded);
  CHECK(machine_error_of([&] { host.synchronize(host.compute_stream()); }).find(kFault) !=
        std::string::npos);
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
