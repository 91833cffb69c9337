// Which rank computes on what: by host and number of GPUs, or on the CPU.
#include "tools/runtime/backend_choice.h"

#include <doctest/doctest.h>

#include "comm/local_transport.h"

namespace fsdp::tools {
namespace {

const std::vector<RankGpus> kTwoHosts = {{"a", 2, ""}, {"b", 2, ""}, {"a", 2, ""}, {"b", 2, ""}};

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST_CASE("ranks of a host take its GPUs in order") {
  std::vector<int> devices;
  for (int rank = 0; rank < 4; ++rank) {
    devices.push_back(choose_gpu(kTwoHosts, rank, "auto", false).cuda->device);
  }
  CHECK(devices == std::vector<int>{0, 0, 1, 1});
}

TEST_CASE("more ranks than GPUs need leave to share") {
  std::vector<RankGpus> ranks = kTwoHosts;
  ranks.push_back({"a", 2, ""});
  CHECK(error_of([&] { choose_gpu(ranks, 1, "auto", false); }) ==
        "a has 3 ranks and 2 GPUs; --share-gpus lets ranks share one");
  CHECK(choose_gpu(ranks, 4, "cuda", true).cuda->device == 0);
}

TEST_CASE("without a GPU everywhere the CPU computes, or it is an error") {
  std::vector<RankGpus> ranks = kTwoHosts;
  ranks[3] = {"b", 0, "there is no NVIDIA GPU"};
  const GpuChoice choice = choose_gpu(ranks, 0, "", false);
  CHECK(!choice.cuda);
  CHECK(choice.note == (cuda::built() ? "the CPU computes: there is no NVIDIA GPU" : ""));
  CHECK(error_of([&] { choose_gpu(ranks, 0, "cuda", false); }) ==
        "runtime.backend: cuda, but on b there is no NVIDIA GPU");
  CHECK(!choose_gpu(ranks, 0, "cpu", false).cuda);
  CHECK(choose_gpu(ranks, 0, "cpu", false).note.empty());
  CHECK(error_of([&] { choose_gpu(ranks, 0, "tpu", false); }) ==
        "runtime.backend: expected auto, cpu or cuda, got \"tpu\"");
}

TEST_CASE("multiprocessors are divided between NCCL and products, where there is NCCL") {
  GpuChoice gpu = {.cuda = cuda::CudaOptions{}};
  divide_multiprocessors(0, {.nccl = true}, gpu);
  CHECK(gpu.cuda->products_leave == 0);
  divide_multiprocessors(8, {.nccl = true}, gpu);
  CHECK(gpu.cuda->products_leave == 8);
  GpuChoice cpu;
  CHECK_NOTHROW(divide_multiprocessors(0, {}, cpu));
  CHECK(error_of([&] { divide_multiprocessors(8, {}, cpu); }) ==
        "runtime.nccl_ctas: is of NCCL, which nothing is sent over here (runtime.gpu_transport)");
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
    CHECK(error_of([&] { choose_transport(world, "tcp", own); }) ==
          "runtime.gpu_transport: expected auto, nccl or host, got \"tcp\"");
    const std::string error = error_of([&] { choose_transport(world, "nccl", own); });
    CHECK(error ==
          (missing.empty() ? "" : "runtime.gpu_transport: nccl, but on rank 0: " + missing));
  });
}

TEST_CASE("attention is cuDNN's where that is there, and by name only on a GPU") {
  using cuda::AttentionChoice;
  comm::run_local_ranks(2, [](comm::Communicator& world) {
    GpuChoice gpu = {.cuda = cuda::CudaOptions{}}, cpu;
    for (const char* automatic : {"", "auto"}) {
      choose_attention(world, automatic, gpu);
      CHECK(gpu.cuda->attention == AttentionChoice::kAuto);
      choose_attention(world, automatic, cpu);
    }
    choose_attention(world, "own", gpu);
    CHECK(gpu.cuda->attention == AttentionChoice::kOwn);
    for (const char* name : {"own", "cudnn"}) {
      CHECK(error_of([&] { choose_attention(world, name, cpu); }) ==
            fmt::format("runtime.attention: {} is of GPUs, but the CPU computes", name));
    }
    CHECK(error_of([&] { choose_attention(world, "flash", gpu); }) ==
          "runtime.attention: expected auto, cudnn or own, got \"flash\"");
    const std::string missing = cuda::cudnn_missing();
    const std::string error = error_of([&] { choose_attention(world, "cudnn", gpu); });
    CHECK(error == (missing.empty() ? "" : "runtime.attention: cudnn, but on rank 0: " + missing));
    CHECK(gpu.cuda->attention ==
          (missing.empty() ? AttentionChoice::kCudnn : AttentionChoice::kOwn));
  });
}

TEST_CASE("TF32 is for products of f32 on a GPU") {
  GpuChoice gpu = {.cuda = cuda::CudaOptions{}}, cpu;
  choose_products({.tf32 = true}, gpu);
  CHECK(gpu.cuda->tf32);
  choose_products({}, gpu);
  CHECK(!gpu.cuda->tf32);
  choose_products({}, cpu);
  CHECK(error_of([&] { choose_products({.tf32 = true}, cpu); }) ==
        "runtime.tf32: is of GPUs, but the CPU computes");
  BackendOptions options = {.cuda = cuda::CudaOptions{}};
  check_products(options, {DType::kBF16});
  options.cuda->tf32 = true;
  check_products(options, {DType::kBF16, DType::kF32});
  for (const DType dtype : {DType::kBF16, DType::kF64}) {
    CHECK(
        error_of([&] { check_products(options, {dtype}); }) ==
        fmt::format("runtime.tf32: rounds products of f32, but {} is computed in", name_of(dtype)));
  }
}

TEST_CASE("algorithms of products are timed on a GPU alone") {
  GpuChoice gpu = {.cuda = cuda::CudaOptions{}}, cpu;
  for (const char* first : {"", "heuristic"}) {
    choose_products({.choice = first}, gpu);
    CHECK(gpu.cuda->matmul_choices.empty());
    choose_products({.choice = first}, cpu);
  }
  choose_products({.choice = "timed"}, gpu);
  CHECK(gpu.cuda->matmul_choices == ".cache/matmul");
  CHECK(error_of([&] { choose_products({.choice = "timed"}, cpu); }) ==
        "runtime.matmul_choice: timed is of GPUs, but the CPU computes");
  CHECK(error_of([&] { choose_products({.choice = "fast"}, gpu); }) ==
        "runtime.matmul_choice: expected heuristic or timed, got \"fast\"");
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
