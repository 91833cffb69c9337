// NCCL itself, through the table of functions, on one rank: a communicator skips collectives of one
// rank, so a machine with a single GPU would never call the library. Several ranks:
// tests/cuda_emulator/ranks/nccl_test.cpp, and a machine with several GPUs.
#include <chrono>
#include <thread>

#include "comm/local_transport.h"
#include "comm/nccl_library.h"
#include "comm/nccl_transport.h"
#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

namespace nccl = comm::nccl;

// A communicator of one rank, nonblocking as the transport's are.
class OneRank {
 public:
  OneRank() {
    nccl::UniqueId id = {};
    check(library.get_unique_id(&id));
    nccl::Config config;
    check(library.init_rank(&comm, 1, id, 0, &config));
  }
  ~OneRank() { end(comm); }
  OneRank(const OneRank&) = delete;
  OneRank& operator=(const OneRank&) = delete;

  void end(nccl::Comm of) {
    check(library.finalize(of), of);
    CHECK(library.destroy(of) == nccl::kSuccess);
  }
  void check(nccl::Result result) { check(result, comm); }
  void check(nccl::Result result, nccl::Comm of) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (result == nccl::kInProgress && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
      REQUIRE(library.async_error(of, &result) == nccl::kSuccess);
    }
    REQUIRE(result == nccl::kSuccess);
  }

  // The parent is in progress until the child is there.
  nccl::Comm split() {
    nccl::Comm child = nullptr;
    nccl::Config config;
    check(library.split(comm, 0, 0, &child, &config));
    check(nccl::kInProgress);
    REQUIRE(child);
    check(nccl::kInProgress, child);
    return child;
  }

  const nccl::Library& library = nccl::library();
  nccl::Comm comm = nullptr;
};

struct Buffers {
  Tensor send, receive;
  Values values;

  Buffers(cuda::CudaBackend& gpu, DType dtype)
      : send(random_tensor(gpu, {257}, dtype, 3)), receive(Tensor::zeros(gpu, {257}, dtype)) {
    values = send.to_doubles();
  }
  size_t count() const { return static_cast<size_t>(send.numel()); }
};

// call(from, to): once into other memory, once in place.
template <typename Call>
void check_both_ways(cuda::CudaBackend& gpu, DType dtype, OneRank& rank, Call call) {
  Buffers apart(gpu, dtype), in_place(gpu, dtype);
  rank.check(call(apart.send.data(), apart.receive.data(), apart.count()));
  rank.check(call(in_place.send.data(), in_place.send.data(), in_place.count()));
  gpu.synchronize(gpu.compute_stream());
  CHECK(apart.receive.to_doubles() == apart.values);
  CHECK(in_place.send.to_doubles() == in_place.values);
}

TEST_CASE("NCCL on one rank: every collective, into other memory and in place") {
  if (const std::string missing = comm::nccl_missing(); !missing.empty()) {
    std::printf("[SKIP] no NCCL: %s\n", missing.c_str());
    return;
  }
  on_gpu([](cuda::CudaBackend& gpu) {
    OneRank rank;
    const nccl::Library& library = rank.library;
    void* const stream = gpu.compute_stream().native_handle();
    for (const auto& [dtype, type] : {std::pair{DType::kF32, nccl::kFloat32},
                                      {DType::kBF16, nccl::kBFloat16},
                                      {DType::kF16, nccl::kFloat16}}) {
      CAPTURE(name_of(dtype));
      check_both_ways(gpu, dtype, rank, [&, type = type](void* from, void* to, size_t n) {
        return library.all_gather(from, to, n, type, rank.comm, stream);
      });
      check_both_ways(gpu, dtype, rank, [&, type = type](void* from, void* to, size_t n) {
        return library.broadcast(from, to, n, type, 0, rank.comm, stream);
      });
      for (const nccl::RedOp op : {nccl::kSum, nccl::kAvg, nccl::kMax}) {
        CAPTURE(static_cast<int>(op));
        check_both_ways(gpu, dtype, rank, [&, type = type](void* from, void* to, size_t n) {
          return library.reduce_scatter(from, to, n, type, op, rank.comm, stream);
        });
        check_both_ways(gpu, dtype, rank, [&, type = type](void* from, void* to, size_t n) {
          return library.all_reduce(from, to, n, type, op, rank.comm, stream);
        });
      }
    }
  });
}

TEST_CASE("NCCL on one rank: a communicator split from another, ended and aborted") {
  if (!comm::nccl_missing().empty()) return;  // the first case says so
  on_gpu([](cuda::CudaBackend& gpu) {
    OneRank rank;
    const nccl::Comm child = rank.split();
    const Buffers buffers(gpu, DType::kF32);
    rank.check(rank.library.all_reduce(buffers.send.data(), buffers.receive.data(), buffers.count(),
                                       nccl::kFloat32, nccl::kSum, child,
                                       gpu.compute_stream().native_handle()),
               child);
    gpu.synchronize(gpu.compute_stream());
    CHECK(buffers.receive.to_doubles() == buffers.values);
    rank.end(child);
    CHECK(rank.library.abort(rank.split()) == nccl::kSuccess);
  });
}

TEST_CASE("the transport on one rank: the communicators of a mesh, and their collectives") {
  if (!comm::nccl_missing().empty()) return;  // the first case says so
  on_gpu([](cuda::CudaBackend& gpu) {
    comm::run_local_ranks(1, [&](comm::Communicator& control) {
      const auto world = comm::make_nccl_world(control, {});
      const auto shards = world->split([](int) { return comm::SplitPlace{}; }, "shards");
      const auto gather = shards->duplicate("gather");
      const Buffers buffers(gpu, DType::kF32);
      gather->all_gather(gpu.compute_stream(), buffers.send)->wait();
      CHECK(buffers.send.to_doubles() == buffers.values);
    });
  });
}

TEST_CASE("NCCL on one rank: memory of its own, registered and given back") {
  if (!comm::nccl_missing().empty()) return;  // the case above says so
  on_gpu([](cuda::CudaBackend& gpu) {
    OneRank rank;
    const nccl::Library& library = rank.library;
    if (!library.memory_allocate) {
      std::printf("[SKIP] NCCL is older than registered buffers\n");
      return;
    }
    constexpr size_t kBytes = 4096;
    void *data = nullptr, *handle = nullptr;
    rank.check(library.memory_allocate(&data, kBytes));
    rank.check(library.register_memory(rank.comm, data, kBytes, &handle));
    const Buffers buffers(gpu, DType::kF32);
    gpu.copy(gpu.compute_stream(), data, buffers.send.data(), buffers.send.bytes());
    rank.check(library.all_reduce(data, data, buffers.count(), nccl::kFloat32, nccl::kSum,
                                  rank.comm, gpu.compute_stream().native_handle()));
    gpu.copy(gpu.compute_stream(), buffers.receive.data(), data, buffers.send.bytes());
    gpu.synchronize(gpu.compute_stream());
    CHECK(buffers.receive.to_doubles() == buffers.values);
    rank.check(library.deregister_memory(rank.comm, handle));
    rank.check(library.memory_free(data));
  });
}

}  // namespace
}  // namespace fsdp::test
