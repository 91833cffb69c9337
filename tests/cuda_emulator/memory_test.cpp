// The device's memory when it is nearly full: what the pool keeps is not lost (pool.h), and what a
// library takes for itself finds room. Copies from the host's memory that the host does not wait
// for.
#include <numeric>

#include "core/machine_error.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

constexpr size_t kPiece = size_t{1} << 20;

emulator::Settings with_memory(size_t bytes) {
  emulator::Settings settings = emulator::settings();
  settings.memory = bytes;
  return settings;
}

std::vector<Tensor> pieces(cuda::CudaBackend& gpu, int count) {
  std::vector<Tensor> out;
  for (int i = 0; i < count; ++i) out.push_back(Tensor::empty(gpu, {kPiece / 4}, DType::kF32));
  return out;
}

TEST_CASE("memory that came in small pieces and went back serves a large allocation") {
  const emulator::Configured configured(with_memory(8 * kPiece));
  cuda::CudaBackend gpu;
  pieces(gpu, 6);
  const Tensor large = Tensor::empty(gpu, {3 * kPiece / 4}, DType::kF32);
  CHECK(large.defined());
  pieces(gpu, 5);
}

TEST_CASE("memory that another stream has yet to give back is waited for") {
  emulator::Settings settings = with_memory(8 * kPiece);
  settings.delay = [](const std::string&, std::string_view task) {
    return task == "free" ? 20000 : 0;
  };
  const emulator::Configured configured(settings);
  cuda::CudaBackend gpu;
  const auto side = gpu.create_stream("side");
  void* const data = gpu.allocate(*side, 6 * kPiece, MemoryCategory::kActivation);
  gpu.release(*side, data, 6 * kPiece, MemoryCategory::kActivation);
  CHECK(pieces(gpu, 6).size() == 6);
}

TEST_CASE("what does not fit is an error that tells the device's memory") {
  const emulator::Configured configured(with_memory(8 * kPiece));
  cuda::CudaBackend gpu;
  const std::vector<Tensor> held = pieces(gpu, 6);
  CHECK_THROWS_WITH_AS(Tensor::empty(gpu, {3 * kPiece / 4}, DType::kF32),
                       doctest::Contains("out of memory (emulated GPU has 8 MiB, 2 MiB of them "
                                         "free outside the pool)"),
                       MachineError);
}

// 1 MiB goes at a time, so the last piece is short.
TEST_CASE("a copy from the host's memory does not wait for the GPU, up to 15 MiB") {
  const auto host_waits = [](cuda::CudaBackend& gpu, int64_t elements) {
    std::vector<int32_t> values(static_cast<size_t>(elements));
    std::iota(values.begin(), values.end(), 0);
    Tensor to = Tensor::empty(gpu, {elements}, DType::kI32);
    const int64_t before = emulator::counts().host_waits;
    gpu.copy_from_host(gpu.compute_stream(), to.data(), values.data(), to.bytes());
    const int64_t waits = emulator::counts().host_waits - before;
    std::fill(values.begin(), values.end(), -1);  // it is read before the call returns
    std::vector<int32_t> back(values.size());
    gpu.copy_to_host(gpu.compute_stream(), back.data(), to.data(), to.bytes());
    std::iota(values.begin(), values.end(), 0);
    CHECK(back == values);
    return waits;
  };
  cuda::CudaBackend gpu;
  CHECK(host_waits(gpu, 3) == 0);
  CHECK(host_waits(gpu, 15 * kPiece / 4 - 7) == 0);
  CHECK(host_waits(gpu, 33 * kPiece / 4 + 1) == 2);
}

TEST_CASE("a copy of memory that is not pinned stops the host, as the driver does") {
  cuda::CudaBackend gpu;
  Tensor to = Tensor::empty(gpu, {4}, DType::kF32);
  const std::shared_ptr<std::byte> pinned = gpu.staging_memory(to.bytes());
  const float pageable[4] = {1, 2, 3, 4};
  const auto waits_of = [&](const void* from) {
    const int64_t before = emulator::counts().host_waits;
    gpu.copy(gpu.compute_stream(), to.data(), from, to.bytes());
    return emulator::counts().host_waits - before;
  };
  CHECK(waits_of(pinned.get()) == 0);
  CHECK(waits_of(pageable) == 1);
}

}  // namespace
}  // namespace fsdp::test
