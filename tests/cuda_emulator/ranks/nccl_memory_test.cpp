// NCCL takes memory of the device itself, which the pool of the backend may keep: it is given back
// when NCCL is about to want it.
#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "comm/nccl_transport.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/cuda_emulator/emulator.h"

namespace fsdp::test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// The pool keeps so much of the device afterwards. Collective.
void keep(comm::Communicator& control, cuda::CudaBackend& gpu, size_t bytes) {
  control.barrier();
  if (control.rank() == 0) {
    const Tensor large = Tensor::empty(gpu, {static_cast<int64_t>(bytes / 4)}, DType::kF32);
  }
  gpu.synchronize(gpu.compute_stream());  // it is given back
  control.barrier();
}

// Two ranks on a device of 16 MiB, whose pool keeps `kept` of them after NCCL's world is there, of
// which each communicator takes 1 MiB now and 1 MiB when it is connected.
void with_kept(size_t kept,
               const std::function<void(comm::Communicator& control, comm::Communicator& nccl,
                                        cuda::CudaBackend& gpu)>& body) {
  emulator::Settings settings = emulator::settings();
  settings.memory = 16 * kMiB;
  settings.nccl_bytes = kMiB;
  const emulator::Configured configured(settings);
  cuda::CudaBackend().give_back_unused();  // of other tests
  comm::run_local_ranks(2, [&](comm::Communicator& control) {
    cuda::CudaBackend gpu;
    const auto nccl = comm::make_nccl_world(control, {});
    keep(control, gpu, kept);
    body(control, *nccl, gpu);
  });
}

TEST_CASE("what the pool keeps is given back before a communicator is connected") {
  with_kept(13 * kMiB,
            [](comm::Communicator& control, comm::Communicator& nccl, cuda::CudaBackend& gpu) {
              const Tensor one = Tensor::zeros(gpu, {2}, DType::kF32);
              nccl.all_reduce(gpu.compute_stream(), one, comm::ReduceOp::kSum);
              CHECK_NOTHROW(gpu.synchronize(gpu.compute_stream()));
              keep(control, gpu, 11 * kMiB);  // again, before another kind of collective
              nccl.all_gather(gpu.compute_stream(), one);
              CHECK_NOTHROW(gpu.synchronize(gpu.compute_stream()));
            });
}

TEST_CASE("what the pool keeps is given back for memory that is registered") {
  const int64_t before = emulator::nccl_registrations();
  with_kept(11 * kMiB, [](comm::Communicator&, comm::Communicator& nccl, cuda::CudaBackend& gpu) {
    const auto buffer = nccl.allocate(gpu, 2 * kMiB, MemoryCategory::kCommunication);
    CHECK(buffer->bytes() == 2 * kMiB);
  });
  CHECK(emulator::nccl_registrations() == before + 2);
}

}  // namespace
}  // namespace fsdp::test
