// The emulator's NCCL is as strict as NCCL: [Note: in progress] of nccl.cpp, rule by rule.
#include <doctest/doctest.h>

#include "comm/nccl_library.h"
#include "kernels/cuda/cuda_backend.h"

namespace fsdp::test {
namespace {

namespace nccl = comm::nccl;

nccl::Result state_of(nccl::Comm comm) {
  nccl::Result state = nccl::kSuccess;
  const nccl::Result asked = nccl::library().async_error(comm, &state);
  return asked == nccl::kSuccess ? state : asked;
}

void settle(nccl::Comm comm) {
  while (state_of(comm) == nccl::kInProgress) {
  }
}

nccl::Comm begin_one_rank(int ranks = 1) {
  nccl::Comm comm = nullptr;
  nccl::UniqueId id = {};
  nccl::Config config;
  CHECK(nccl::library().get_unique_id(&id) == nccl::kSuccess);
  CHECK(nccl::library().init_rank(&comm, ranks, id, 0, &config) == nccl::kInProgress);
  return comm;
}

nccl::Result split(nccl::Comm parent, nccl::Comm* child) {
  nccl::Config config;
  return nccl::library().split(parent, 0, 0, child, &config);
}

nccl::Result broadcast(nccl::Comm comm, Stream& stream) {
  float value = 1;
  return nccl::library().broadcast(&value, &value, 1, nccl::kFloat32, 0, comm,
                                   stream.native_handle());
}

// Every call that uses `comm`, but for the question for its state and abort.
void check_refuses_all(nccl::Comm comm, Stream& stream) {
  const nccl::Library& library = nccl::library();
  float from = 1, to = 0;
  nccl::Comm child = nullptr;
  void* handle = nullptr;
  void* const native = stream.native_handle();
  for (const nccl::Result result :
       {broadcast(comm, stream), library.all_gather(&from, &to, 1, nccl::kFloat32, comm, native),
        library.all_reduce(&from, &to, 1, nccl::kFloat32, nccl::kSum, comm, native),
        library.reduce_scatter(&from, &to, 1, nccl::kFloat32, nccl::kSum, comm, native),
        split(comm, &child), library.register_memory(comm, &from, sizeof from, &handle),
        library.deregister_memory(comm, &from), library.finalize(comm), library.destroy(comm)}) {
    CHECK(result == nccl::kInvalidArgument);
  }
}

TEST_CASE("a communicator is in progress until all ranks came") {
  cuda::CudaBackend gpu;
  const nccl::Comm comm = begin_one_rank(2);
  CHECK(state_of(comm) == nccl::kInProgress);
  check_refuses_all(comm, gpu.compute_stream());
  CHECK(nccl::library().abort(comm) == nccl::kSuccess);
}

TEST_CASE(
    "a split says success at once, and the child is there when the parent's state is success") {
  cuda::CudaBackend gpu;
  const nccl::Comm parent = begin_one_rank();
  settle(parent);
  nccl::Comm child = parent;
  CHECK(split(parent, &child) == nccl::kSuccess);
  CHECK(child == nullptr);
  CHECK(state_of(child) == nccl::kInvalidArgument);
  check_refuses_all(parent, gpu.compute_stream());
  settle(parent);
  REQUIRE(child);
  CHECK(state_of(child) == nccl::kSuccess);
  CHECK(nccl::library().abort(child) == nccl::kSuccess);
  CHECK(split(parent, &child) == nccl::kSuccess);
  CHECK(nccl::library().abort(parent) == nccl::kSuccess);  // the child that never was goes with it
}

TEST_CASE("every collective, and the end, is in progress until its state was asked for") {
  cuda::CudaBackend gpu;
  const nccl::Comm comm = begin_one_rank();
  settle(comm);
  CHECK(broadcast(comm, gpu.compute_stream()) == nccl::kInProgress);
  check_refuses_all(comm, gpu.compute_stream());
  CHECK(state_of(comm) == nccl::kInProgress);
  CHECK(state_of(comm) == nccl::kSuccess);
  CHECK(broadcast(comm, gpu.compute_stream()) == nccl::kInProgress);
  settle(comm);
  CHECK(nccl::library().finalize(comm) == nccl::kInProgress);
  check_refuses_all(comm, gpu.compute_stream());
  settle(comm);
  CHECK(nccl::library().destroy(comm) == nccl::kSuccess);
}

}  // namespace
}  // namespace fsdp::test
