// Compares comm/nccl_library.h with NCCL's own header. Compiled where that is found; there is
// nothing to run.
#include <cstddef>

#include <nccl.h>

#include "comm/nccl_library.h"
#include "tests/support/same_signature.h"

namespace fsdp::comm::nccl {

static_assert(int{kSuccess} == ncclSuccess && int{kInvalidArgument} == ncclInvalidArgument);
static_assert(int{kUnhandledCudaError} == ncclUnhandledCudaError);
static_assert(int{kRemoteError} == ncclRemoteError && int{kInProgress} == ncclInProgress);
static_assert(int{kInt32} == ncclInt32 && int{kInt64} == ncclInt64);
static_assert(int{kFloat16} == ncclFloat16 && int{kBFloat16} == ncclBfloat16);
static_assert(int{kFloat32} == ncclFloat32 && int{kFloat64} == ncclFloat64);
static_assert(int{kSum} == ncclSum && int{kMax} == ncclMax && int{kAvg} == ncclAvg);
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
static_assert(Config{}.magic == NCCL_API_MAGIC && Config{}.version == NCCL_VERSION(2, 17, 0));
static_assert(kOldest == NCCL_VERSION(2, 26, 0) && kRegistersBuffers == NCCL_VERSION(2, 27, 0));
static_assert(Config{}.min_ctas == NCCL_CONFIG_UNDEF_INT);

static_assert(offsetof(Config, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(Config, cga_cluster_size) == offsetof(ncclConfig_t, cgaClusterSize));
static_assert(offsetof(Config, max_ctas) == offsetof(ncclConfig_t, maxCTAs));
static_assert(offsetof(Config, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(Config, split_share) == offsetof(ncclConfig_t, splitShare));

template <auto own, typename Theirs>
constexpr bool kSame = test::kSameSignature<decltype(std::declval<Library>().*own), Theirs>;
// The comparison sees a difference.
static_assert(!test::kSameSignature<void (*)(int), void (*)(size_t)>);
static_assert(kSame<&Library::get_unique_id, decltype(&ncclGetUniqueId)>);
static_assert(kSame<&Library::init_rank, decltype(&ncclCommInitRankConfig)>);
static_assert(kSame<&Library::split, decltype(&ncclCommSplit)>);
static_assert(kSame<&Library::finalize, decltype(&ncclCommFinalize)>);
static_assert(kSame<&Library::destroy, decltype(&ncclCommDestroy)>);
static_assert(kSame<&Library::abort, decltype(&ncclCommAbort)>);
static_assert(kSame<&Library::async_error, decltype(&ncclCommGetAsyncError)>);
static_assert(kSame<&Library::error_string, decltype(&ncclGetErrorString)>);
static_assert(kSame<&Library::last_error, decltype(&ncclGetLastError)>);
static_assert(kSame<&Library::all_gather, decltype(&ncclAllGather)>);
static_assert(kSame<&Library::reduce_scatter, decltype(&ncclReduceScatter)>);
static_assert(kSame<&Library::all_reduce, decltype(&ncclAllReduce)>);
static_assert(kSame<&Library::broadcast, decltype(&ncclBroadcast)>);
static_assert(kSame<&Library::memory_allocate, decltype(&ncclMemAlloc)>);
static_assert(kSame<&Library::memory_free, decltype(&ncclMemFree)>);
static_assert(kSame<&Library::register_memory, decltype(&ncclCommRegister)>);
static_assert(kSame<&Library::deregister_memory, decltype(&ncclCommDeregister)>);

}  // namespace fsdp::comm::nccl
