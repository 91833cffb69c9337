// Which rank computes on what: by host and number of GPUs, or on the CPU.
// Requirements: S1.21, S2.12.
#include "tools/launch/backend_choice.h"

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/support/environment.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

// GPUs of one address on two hosts are two.
const RankGpus kOnA = {0, "a", "", {"1 a1", "2 a2"}}, kOnB = {1, "b", "", {"1 b1", "2 b2"}};
const std::vector<RankGpus> kTwoHosts = {kOnA, kOnB, kOnA, kOnB};

using test::error_of;

TEST_CASE("ranks of a host take its GPUs in order") {
  std::vector<int> devices;
  for (int rank = 0; rank < 4; ++rank) {
    devices.push_back(choose_gpu(kTwoHosts, rank, "auto", false).cuda->device);
  }
  CHECK(devices == std::vector<int>{0, 0, 1, 1});
  CHECK(!choose_gpu(kTwoHosts, 0, "auto", false).shared);
}

// Ranks of one host that see these, in this order of their own.
std::vector<RankGpus> seeing(const std::vector<std::vector<std::string>>& gpus) {
  std::vector<RankGpus> ranks;
  for (const auto& each : gpus) ranks.push_back({0, "a", "", each});
  return ranks;
}

std::vector<int> devices_of(const std::vector<RankGpus>& ranks, bool share) {
  std::vector<int> devices;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    devices.push_back(choose_gpu(ranks, static_cast<int>(rank), "cuda", share).cuda->device);
  }
  return devices;
}

TEST_CASE("a rank takes one of the GPUs that it sees") {
  const auto own = seeing({{"1 x"}, {"2 y"}, {"3 z"}});
  CHECK(devices_of(own, false) == std::vector<int>{0, 0, 0});
  CHECK(!choose_gpu(own, 0, "auto", false).shared);
  // The first could take what is all that the second sees.
  CHECK(devices_of(seeing({{"1 x", "2 y"}, {"1 x"}}), false) == std::vector<int>{1, 0});
  CHECK(devices_of(seeing({{"1 x", "2 y"}, {"2 y", "1 x"}}), false) == std::vector<int>{0, 0});
  CHECK(devices_of(seeing({{"1 x", "2 y"}, {"1 x", "2 y"}, {"1 x", "2 y"}}), true) ==
        std::vector<int>{0, 1, 0});
}

TEST_CASE("ranks that see one GPU between them need leave to share") {
  const auto same = seeing({{"1 x"}, {"1 x"}});
  CHECK(error_of([&] { choose_gpu(same, 0, "auto", false); }) ==
        "a has 2 ranks and 1 GPU; --share-gpus lets ranks share one");
  CHECK(choose_gpu(same, 1, "auto", true).shared);
  CHECK(error_of([&] {
          choose_gpu(seeing({{"1 x"}, {"1 x"}, {"2 y", "3 z"}}), 0, "auto", false);
        }) ==
        "ranks 0 and 1 on a see no two different GPUs that are free; --share-gpus lets ranks share "
        "one");
  // Containers of one machine that do not know of each other.
  std::vector<RankGpus> apart = same;
  apart[1].first_of_host = 1;
  CHECK(choose_gpu(apart, 0, "auto", true).shared);
}

TEST_CASE("parts of one GPU are a rank's own, but one GPU to NCCL") {
  const auto parts = seeing({{"1 x"}, {"1 y"}});
  CHECK(devices_of(parts, false) == std::vector<int>{0, 0});
  CHECK(choose_gpu(parts, 0, "auto", false).shared);
}

TEST_CASE("more ranks than GPUs need leave to share") {
  std::vector<RankGpus> ranks = kTwoHosts;
  ranks.push_back(kOnA);
  CHECK(error_of([&] { choose_gpu(ranks, 1, "auto", false); }) ==
        "a has 3 ranks and 2 GPUs; --share-gpus lets ranks share one");
  CHECK(choose_gpu(ranks, 4, "cuda", true).cuda->device == 0);
}

TEST_CASE(
    "without GPUs the CPU computes, or it is an error; so it is where only some ranks have one") {
  std::vector<RankGpus> ranks = kTwoHosts;
  ranks[3] = {1, "b", "there is no NVIDIA GPU", {}};
  for (const int rank : {0, 3}) {
    CHECK(error_of([&] { choose_gpu(ranks, rank, "auto", false); }) ==
          "runtime.backend: auto, but rank 0 on a has a GPU and rank 3 on b has none: there is no "
          "NVIDIA GPU; --backend cpu computes without GPUs");
  }
  for (RankGpus& each : ranks) each = {0, "b", "there is no NVIDIA GPU", {}};
  const GpuChoice choice = choose_gpu(ranks, 0, "auto", false);
  CHECK(!choice.cuda);
  CHECK(choice.note == (cuda::built() ? "the CPU computes: there is no NVIDIA GPU" : ""));
  CHECK(error_of([&] { choose_gpu(ranks, 0, "cuda", false); }) ==
        "runtime.backend: cuda, but on b there is no NVIDIA GPU");
  CHECK(!choose_gpu(ranks, 0, "cpu", false).cuda);
  CHECK(choose_gpu(ranks, 0, "cpu", false).note.empty());
}

TEST_CASE("a GPU that is there but cannot be used is an error, unless the CPU was asked for") {
  std::vector<RankGpus> ranks = kTwoHosts;
  ranks[2] = {0, "a", "there is no NVIDIA GPU", {}};  // says less than the next
  ranks[3] = {1, "b", "this program was built without CUDA", {}, true};
  for (const int rank : {0, 3}) {
    CHECK(error_of([&] { choose_gpu(ranks, rank, "auto", false); }) ==
          "runtime.backend: auto, but b has a GPU that this program cannot use: this program was "
          "built without CUDA; "
          "--backend cpu computes without it");
  }
  CHECK(error_of([&] { choose_gpu(ranks, 0, "cuda", false); }) ==
        "runtime.backend: cuda, but on a there is no NVIDIA GPU");
  CHECK(!choose_gpu(ranks, 0, "cpu", false).cuda);
}

TEST_CASE("ranks look whether their host has a GPU that they may use") {
  if (cuda::count_devices().devices > 0) return;
  const test::TempFolder folder;
  const test::Environment visible("CUDA_VISIBLE_DEVICES", nullptr);
  const auto unusable = [&](const char* backend) {
    int found = 0;
    comm::run_local_ranks(2, [&](comm::Communicator& world) {
      const std::vector<RankGpus> ranks = gpus_of_ranks(world, 0, backend, folder.path());
      if (world.rank() == 1) found = ranks[0].unusable + ranks[1].unusable;
    });
    return found;
  };
  CHECK(unusable("auto") == 0);
  std::filesystem::create_directory(folder / "dev");
  folder.write("dev/nvidia0", "");
  CHECK(unusable("auto") == 2);
  CHECK(unusable("cpu") == 0);
  const test::Environment hidden("CUDA_VISIBLE_DEVICES", "");
  CHECK(unusable("auto") == 0);
  if (cuda::built()) return;
  for (const char* way : {"make CUDA=1", "tools/setup.sh --cuda"}) {
    CHECK(cuda::count_devices().reason.find(way) != std::string::npos);
  }
}

TEST_CASE("multiprocessors are divided between NCCL and products, where there is NCCL") {
  GpuChoice gpu = {.cuda = cuda::CudaOptions{}};
  divide_multiprocessors(0, {.nccl = true}, gpu);
  CHECK(gpu.cuda->products_leave == 0);
  divide_multiprocessors(8, {.nccl = true}, gpu);
  CHECK(gpu.cuda->products_leave == 16);  // a gather's and a reduction's
  GpuChoice cpu;
  CHECK_NOTHROW(divide_multiprocessors(0, {}, cpu));
  CHECK(
      error_of([&] { divide_multiprocessors(8, {}, cpu); }) ==
      "runtime.nccl_ctas: only for NCCL, but no collective uses NCCL here (runtime.gpu_transport)");
}

TEST_CASE("GPUs talk over NCCL where each rank has its own and the library is there") {
  comm::run_local_ranks(2, [](comm::Communicator& world) {
    const GpuChoice own = {.cuda = cuda::CudaOptions{}},
                    shared = {.cuda = own.cuda, .shared = true};
    const std::string missing = comm::nccl_missing();
    const TransportChoice choice = choose_transport(world, "auto", own);
    CHECK(choice.nccl == missing.empty());
    CHECK(choice.note ==
          (missing.empty() ? "" : "collectives go through the host: rank 0: " + missing));
    CHECK(!choose_transport(world, "host", own).nccl);
    CHECK(!choose_transport(world, "auto", shared).nccl);
    CHECK(!choose_transport(world, "auto", {}).nccl);  // the CPU computes
    CHECK(error_of([&] { choose_transport(world, "nccl", {}); }) ==
          "runtime.gpu_transport: nccl is between GPUs, but the CPU computes");
    const std::string error = error_of([&] { choose_transport(world, "nccl", own); });
    CHECK(error ==
          (missing.empty() ? "" : "runtime.gpu_transport: nccl, but on rank 0: " + missing));
  });
}

TEST_CASE("attention is cuDNN's where that is there, and by name only on a GPU") {
  using cuda::AttentionChoice;
  comm::run_local_ranks(2, [](comm::Communicator& world) {
    GpuChoice gpu = {.cuda = cuda::CudaOptions{}}, cpu;
    choose_attention(world, "auto", gpu);
    CHECK(gpu.cuda->attention == AttentionChoice::kAuto);
    choose_attention(world, "auto", cpu);
    choose_attention(world, "own", gpu);
    CHECK(gpu.cuda->attention == AttentionChoice::kOwn);
    for (const char* name : {"own", "cudnn"}) {
      CHECK(error_of([&] { choose_attention(world, name, cpu); }) ==
            fmt::format("runtime.attention: {} is only for GPUs, but the CPU computes", name));
    }
    const std::string missing = cuda::cudnn_missing();
    const std::string error = error_of([&] { choose_attention(world, "cudnn", gpu); });
    CHECK(error == (missing.empty() ? "" : "runtime.attention: cudnn, but on rank 0: " + missing));
    CHECK(gpu.cuda->attention ==
          (missing.empty() ? AttentionChoice::kCudnn : AttentionChoice::kOwn));
  });
}

TEST_CASE("attention in any order is refused where no cuDNN computes it") {
  const BackendOptions gpu = {.cuda = cuda::CudaOptions{}};
  for (const BackendOptions& each : {gpu, BackendOptions{}}) check_attention(each, true);
  CHECK(error_of([&] { check_attention({}, false); }) ==
        "train.attention_deterministic: false is only for GPUs, but the CPU computes");
  const std::string missing = cuda::cudnn_missing();
  CHECK(error_of([&] { check_attention(gpu, false); }) ==
        (missing.empty()
             ? ""
             : "train.attention_deterministic: false is for cuDNN's attention: " + missing));
}

TEST_CASE("TF32 is for products of f32 on a GPU") {
  GpuChoice gpu = {.cuda = cuda::CudaOptions{}}, cpu;
  choose_products({.tf32 = true}, gpu);
  CHECK(gpu.cuda->tf32);
  choose_products({}, gpu);
  CHECK(!gpu.cuda->tf32);
  choose_products({}, cpu);
  CHECK(error_of([&] { choose_products({.tf32 = true}, cpu); }) ==
        "runtime.tf32: only for GPUs, but the CPU computes");
  BackendOptions options = {.cuda = cuda::CudaOptions{}};
  check_products(options, {DType::kBF16});
  options.cuda->tf32 = true;
  check_products(options, {DType::kBF16, DType::kF32});
  for (const DType dtype : {DType::kBF16, DType::kF64}) {
    CHECK(error_of([&] { check_products(options, {dtype}); }) ==
          fmt::format("runtime.tf32: rounds products of f32, but the computation is in {}",
                      name_of(dtype)));
  }
}

TEST_CASE("algorithms of products are timed on a GPU alone") {
  GpuChoice gpu = {.cuda = cuda::CudaOptions{}}, cpu;
  choose_products({}, gpu);
  CHECK(gpu.cuda->matmul_choices.empty());
  choose_products({.matmul_choice = "heuristic"}, cpu);
  choose_products({.matmul_choice = "timed"}, gpu);
  CHECK(gpu.cuda->matmul_choices == ".cache/matmul");
  CHECK(error_of([&] { choose_products({.matmul_choice = "timed"}, cpu); }) ==
        "runtime.matmul_choice: timed is only for GPUs, but the CPU computes");
}

TEST_CASE("f64 is left to the CPU unless CUDA was asked for") {
  BackendOptions options;
  options.cuda.emplace();
  CHECK(make_backend(options, DType::kF64)->name() == "cpu");
  if (cuda::count_devices().devices > 0) return;
  CHECK(!error_of([&] { make_backend(options, DType::kF32); }).empty());
  options.only_cuda = true;
  CHECK(!error_of([&] { make_backend(options, DType::kF64); }).empty());
}

}  // namespace
}  // namespace fsdp::tools
