// The part of NCCL that the project calls, as a table of functions: the library (a quarter of a
// gigabyte) is opened when GPUs are to talk to each other, and not linked, so the program starts
// and is built without it. Names and values are those of nccl.h;
// tests/cuda_emulator/ranks/nccl_header.cpp compares them where that header is found. Not here:
// what is sent when (nccl_communicator.cpp).
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

namespace fsdp::comm::nccl {

using Comm = struct CommContent*;

enum Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7
};
enum DataType : int {
  kInt32 = 2,
  kInt64 = 4,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBFloat16 = 9,
};
enum RedOp : int { kSum = 0, kMax = 2, kAvg = 4 };

struct UniqueId {
  char bytes[128];
};

// As NCCL 2.17 knew it; newer ones take the fields that it lacks as unset.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21700;
  int blocking = 0;
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

// NCCL_LAUNCH_ORDER_IMPLICIT: without that order a gather and a reduction, which have communicators
// and streams of their own, may each wait on some GPUs for multiprocessors that the other holds.
constexpr int kOldest = 22600;
constexpr int kSharesDevices = 23000;  // NCCL_MULTI_RANK_GPU_ENABLE
// ncclMemAlloc: older ones round each buffer up to the granularity of multicast, 512 MiB on an
// H100.
constexpr int kRegistersBuffers = 22700;

struct Library {
  Result (*get_version)(int*);
  Result (*get_unique_id)(UniqueId*);
  Result (*init_rank)(Comm*, int ranks, UniqueId, int rank, Config*);
  Result (*split)(Comm, int color, int key, Comm*, Config*);
  Result (*finalize)(Comm);
  Result (*destroy)(Comm);
  Result (*abort)(Comm);  // waits for the end of its collectives, and for the peers' aborts
  Result (*group_start)();
  Result (*group_end)();
  Result (*async_error)(Comm, Result*);
  const char* (*error_string)(Result);
  const char* (*last_error)(Comm);  // what NCCL last warned of; may be empty
  Result (*all_gather)(const void* send, void* receive, size_t count, DataType, Comm,
                       void* stream);  // count: that each rank sends
  Result (*reduce_scatter)(const void* send, void* receive, size_t count, DataType, RedOp, Comm,
                           void* stream);  // count: that each rank receives
  Result (*all_reduce)(const void* send, void* receive, size_t count, DataType, RedOp, Comm,
                       void* stream);
  Result (*broadcast)(const void* send, void* receive, size_t count, DataType, int root, Comm,
                      void* stream);
  // Null where the library is older than kRegistersBuffers.
  Result (*memory_allocate)(void**, size_t);
  Result (*memory_free)(void*);
  Result (*register_memory)(Comm, void*, size_t, void** handle);
  Result (*deregister_memory)(Comm, void* handle);
};

// Error when the library is not there or too old: tells where it was looked for.
const Library& library();

}  // namespace fsdp::comm::nccl
