// What the tests of the CUDA backend share. The same sources run on a GPU (test_gpu) and on the
// emulator (test_cuda_emulator), there once for every order of threads and blocks.
#pragma once

#include <cstdio>
#include <deque>
#include <functional>
#include <map>

#include <doctest/doctest.h>

#include "core/kernel_args.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/meta/kernel_call.h"
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

// ---- a call on the CPU, and the same call on the GPU ----

// Tensors of the CPU with random values; where they are only written, they hold others before.
class CpuTensors {
 public:
  Tensor& of(Shape shape, DType dtype, double low = -1, double high = 1) {
    return tensors_.emplace_back(random_tensor(cpu_, shape, dtype, ++seed_, low, high));
  }
  Tensor& tokens(Shape shape, int64_t below) {
    std::vector<int32_t> tokens;
    for (const double value : random_values(shape.numel(), 9, 0, double(below))) {
      tokens.push_back(int32_t(value));
    }
    return tensors_.emplace_back(Tensor::from_host(cpu_, shape, tokens));
  }
  template <typename T>
  Tensor& holding(const std::vector<T>& values) {
    return tensors_.emplace_back(Tensor::from_host(cpu_, {int64_t(values.size())}, values));
  }
  Backend& cpu() { return cpu_; }

 private:
  cpu::CpuBackend cpu_;
  std::deque<Tensor> tensors_;
  uint64_t seed_ = 0;
};

// What a CPU's tensors hold now, on a GPU. Tensors that share memory share it there. All but
// small results begin `offset` elements into their storage.
class CopiedTensors final : public meta::CallTensors {
 public:
  CopiedTensors(Backend& gpu, int64_t offset) : gpu_(gpu), offset_(offset) {}
  Tensor make(const meta::TensorForm& form) override {
    Tensor& copy = by_address_[form.address];
    if (!copy.defined()) {
      const bool written = form.role.use != TensorRole::Use::kIn;
      const int64_t offset = form.role.is_small && written ? 0 : offset_;
      copy =
          Tensor::empty(gpu_, {form.shape.numel() + offset}, form.dtype).slice(offset, form.shape);
      copy.write(form.address);
    }
    made_.emplace_back(copy.storage(), copy.byte_offset(), form.shape, form.dtype);
    return made_.back();
  }
  const std::vector<Tensor>& made() const { return made_; }

 private:
  Backend& gpu_;
  int64_t offset_;
  std::map<const void*, Tensor> by_address_;
  std::vector<Tensor> made_;
};

struct Match {
  double roundings = 1;                // see check_against_cpu(); of the dtype of the call
  bool bits = false;                   // the same, instead
  std::vector<int64_t> offsets{0, 1};  // elements by which tensors miss their alignment
};

// `kernel` has the tensors of a CPU. Runs it there and on the GPU: what it writes is the same.
inline void check_call(cuda::CudaBackend& gpu, Kernel kernel, const Match& match = {}) {
  const meta::KernelCall call = meta::kernel_call(kernel);
  CAPTURE(call.kernel);
  CAPTURE(call.shape);
  CAPTURE(name_of(call.dtype));
  std::vector<std::pair<TensorRole, const Tensor*>> tensors;
  kernel.visit([&](const auto& args) {
    for_each_tensor(args, [&](const TensorRole& role, const Tensor& tensor) {
      tensors.emplace_back(role, &tensor);
    });
  });
  Backend& cpu = tensors.front().second->backend();
  cpu.synchronize(cpu.compute_stream());  // then they hold their values
  std::vector<CopiedTensors> copies;
  std::vector<meta::KernelRun> runs;
  for (const int64_t offset : match.offsets) {
    runs.push_back(call.prepare(copies.emplace_back(gpu, offset)));
  }
  cpu.run(cpu.compute_stream(), kernel);
  const double limit =
      match.roundings * 2 * unit_roundoff(call.dtype) + 16 * unit_roundoff(DType::kF32);
  for (size_t i = 0; i < runs.size(); ++i) {
    CAPTURE(match.offsets[i]);
    runs[i](gpu, gpu.compute_stream());
    for (size_t t = 0; t < tensors.size(); ++t) {
      if (tensors[t].first.use == TensorRole::Use::kIn) continue;
      CAPTURE(t);  // in the order of visit()
      const Values actual = copies[i].made()[t].to_doubles();
      const Values expected = tensors[t].second->to_doubles();
      if (match.bits) CHECK(actual == expected);
      CHECK(largest_error(actual, expected) <= limit);
    }
  }
}

}  // namespace fsdp::test
