// GPUs that have less than the one the emulator is by default: of shared memory, and of
// multiprocessors where communication keeps some.
#include <cuda_runtime_api.h>

#include "core/io/file.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/support/attention_case.h"
#include "tests/support/gpu_support.h"
#include "tests/support/temp_folder.h"

namespace fsdp::test {
namespace {

void attend(uint64_t shared_per_block, DType dtype, int64_t head_dim) {
  emulator::Settings settings = emulator::settings();
  settings.shared_per_block = shared_per_block;
  const emulator::Configured configured(settings);
  cuda::CudaBackend gpu({.attention = cuda::AttentionChoice::kOwn});
  const Case c = {1, 1, 1, 3, 3, head_dim};
  run_attention(gpu, c, dtype, Operands(c, dtype));
}

// Sizes: the table in kernels/cuda/attention_problem.h.
TEST_CASE("attention: tiles that do not fit into shared memory are refused by name") {
  constexpr uint64_t kConsumer = 99 << 10, kA100 = 163 << 10;
  CHECK_THROWS_WITH_AS(
      attend(kConsumer, DType::kF32, 72),
      "[attention_forward (1, 3, 72) f32 (1, 3, 72) f32 (1, 3, 72) f32 (1, 3, 72) f32] shared "
      "memory: a block needs 106752 bytes, emulated GPU gives it 101376 at most",
      Error);
  for (const auto& [dtype, head_dim] :
       {std::pair<DType, int64_t>{DType::kF32, 64}, {DType::kBF16, 64}, {DType::kBF16, 128}}) {
    CAPTURE(head_dim);
    CHECK_NOTHROW(attend(kConsumer, dtype, head_dim));
  }
  CHECK_NOTHROW(attend(kA100, DType::kF32, 128));
  CHECK_NOTHROW(attend(106752, DType::kF32, 128));
  CHECK_THROWS_AS(attend(106751, DType::kF32, 128), Error);
  // The gradients of keys and values have 48 KiB by the launch and one by name.
  CHECK_NOTHROW(attend(49 << 10, DType::kBF16, 64));
  CHECK_THROWS_AS(attend((49 << 10) - 1, DType::kBF16, 64), Error);
}

// An algorithm of the emulator says in its fifth word how many multiprocessors it was asked to use,
// above the epilogue.
TEST_CASE("products leave multiprocessors to communication, and are chosen for what is left") {
  const TempFolder folder;
  emulator::Settings settings = emulator::settings();
  settings.multiprocessors = 4;
  const emulator::Configured configured(settings);
  for (const int leave : {0, 1}) {
    cuda::CudaBackend gpu(
        {.matmul_choices = folder / std::to_string(leave), .products_leave = leave});
    const Tensor a = random_tensor(gpu, {8, 16}, DType::kF32, 1);
    const Tensor b = random_tensor(gpu, {16, 12}, DType::kF32, 2);
    Tensor c = Tensor::empty(gpu, {8, 12}, DType::kF32);
    gpu.run(gpu.compute_stream(), MatmulArgs{.a = a, .b = b, .c = c});
    gpu.synchronize(gpu.compute_stream());
    std::string text;
    for (const auto& each : std::filesystem::directory_iterator(folder / std::to_string(leave))) {
      if (each.path().extension() != ".lock") text = read_file(each.path());
    }
    const size_t algorithm = text.find(" = ");
    REQUIRE(algorithm != std::string::npos);
    CHECK((text.find(" on 3 ") != std::string::npos) == (leave == 1));
    CHECK(text.substr(algorithm + 3 + 4 * 16, 8) == (leave == 1 ? "00000003" : "00000000"));
  }
}

TEST_CASE("a GPU that lacks what the kernels use is no GPU, and the reason says so") {
  emulator::Settings settings = emulator::settings();
  settings.compute_capability = 70;
  const emulator::Configured configured(settings);
  const std::string reason =
      "GPU 0 (emulated GPU) has compute capability 7.0; expected 8.0 or newer: A100, L40, H100 "
      "and the like. CUDA_VISIBLE_DEVICES with the other GPUs leaves it out";
  const cuda::DeviceCount count = cuda::count_devices();
  CHECK(count.devices == 0);
  CHECK(count.reason == reason);
  CHECK_THROWS_WITH_AS(cuda::CudaBackend(cuda::CudaOptions()), ("[cuda] no GPU: " + reason).c_str(),
                       Error);
}

// The texts name this program's CUDA, that of the headers here.
std::string own_cuda(int add = 0) {
  const int version = CUDART_VERSION + add;
  return fmt::format("{}.{}", version / 1000, version / 10 % 100);
}

TEST_CASE(
    "a driver that is older than the program's CUDA shows no GPU, and the reason says which is "
    "needed") {
  const auto reason_of = [](int driver) {
    emulator::Settings settings = emulator::settings();
    settings.driver = driver;
    const emulator::Configured configured(settings);
    const cuda::DeviceCount count = cuda::count_devices();
    CHECK((count.devices == 0) == (driver / 1000 < CUDART_VERSION / 1000));
    return count.reason;
  };
  const std::string needed = CUDART_VERSION / 1000 == 12 ? "driver 525" : "driver 580";
  CHECK(reason_of(0) == "there is no NVIDIA driver (libcuda.so.1)");
  CHECK(reason_of(11080) ==
        "the NVIDIA driver knows CUDA 11.8 and is older than this program's CUDA " + own_cuda() +
            ", which needs " + needed + " or newer");
  const int before = CUDART_VERSION - 1000;  // 12.0 for 13.0
  if (before >= 12000) {
    CHECK(reason_of(before) == "the NVIDIA driver knows CUDA " + own_cuda(-1000) +
                                   " and is older than this program's CUDA " + own_cuda() +
                                   ", which needs " + needed +
                                   " or newer; built with CUDA 12, it would run");
  }
  CHECK(reason_of(CUDART_VERSION / 1000 * 1000).empty());  // of the same first number
}

TEST_CASE(
    "a GPU for which the program has no code is refused by what is missing, before any kernel") {
  struct Missing {
    cudaError_t error;
    int capability;
    std::string said;
  };
  const std::string none = "none runs on this GPU; make CUDA=1 CUDA_ARCH=";
  const std::vector<Missing> all = {
      {cudaErrorNoKernelImageForDevice, 120, none + "120 builds code for it"},
      {cudaErrorInvalidDeviceFunction, 90, none + "90a builds code for it"},
      {cudaErrorUnsupportedPtxVersion, 103,
       "the driver cannot translate PTX of CUDA " + own_cuda() +
           "; make CUDA=1 CUDA_ARCH=103 builds code for it, or a driver of CUDA " + own_cuda() +
           " translates"}};
  for (const Missing& each : all) {
    emulator::Settings settings = emulator::settings();
    settings.kernel_code = each.error;
    settings.compute_capability = each.capability;
    settings.driver = CUDART_VERSION + 30;
    const emulator::Configured configured(settings);
    const std::string reason = fmt::format(
        "GPU 0 (emulated GPU) has compute capability {}.{}, and this program has code for 80, 90a, "
        "PTX of 90 (its CUDA "
        "is {}, the driver knows {}): {}",
        each.capability / 10, each.capability % 10, own_cuda(), own_cuda(30), each.said);
    CHECK(cuda::missing_code(0) == reason);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(cuda::count_devices().devices == 1);
    CHECK_THROWS_WITH_AS(cuda::CudaBackend(cuda::CudaOptions()), ("[cuda] " + reason).c_str(),
                         Error);
  }
  CHECK(cuda::missing_code(0).empty());
  emulator::Settings settings = emulator::settings();
  settings.kernel_code = cudaErrorMemoryAllocation;  // another process has all: no matter of code
  const emulator::Configured configured(settings);
  CHECK(cuda::missing_code(0).empty());
}

TEST_CASE("communication cannot have all multiprocessors") {
  emulator::Settings settings = emulator::settings();
  settings.multiprocessors = 4;
  const emulator::Configured configured(settings);
  CHECK_NOTHROW(cuda::CudaBackend({.products_leave = 3}));
  CHECK_THROWS_WITH_AS(cuda::CudaBackend({.products_leave = 4}),
                       "[cuda] runtime.nccl_ctas: leaves products none of the 4 multiprocessors of "
                       "emulated GPU: collectives may take 4",
                       Error);
}

}  // namespace
}  // namespace fsdp::test
