// Opens NCCL. The emulator of the tests has its own: tests/cuda_emulator/nccl.cpp.
#include "comm/nccl_library.h"

#include <optional>
#include <string>

#include "core/dynamic_library.h"
#include "core/error.h"

namespace fsdp::comm::nccl {
namespace {

Library open() {
  // FSDP_NCCL_LIBRARY: where the build has found it
  const DynamicLibrary from("NCCL", {FSDP_NCCL_LIBRARY, "libnccl.so.2"});
  Library to{};
  from.find(to.get_version, "ncclGetVersion");
  int version = 0;
  to.get_version(&version);
  FSDP_CHECK(
      version >= kOldest,
      "[NCCL] the library has version {}: expected {} or newer: an older one may hang when a "
      "gather and a reduction run at once; --gpu-transport host needs no NCCL",
      version, kOldest);
  from.find(to.get_unique_id, "ncclGetUniqueId");
  from.find(to.init_rank, "ncclCommInitRankConfig");
  from.find(to.split, "ncclCommSplit");
  from.find(to.finalize, "ncclCommFinalize");
  from.find(to.destroy, "ncclCommDestroy");
  from.find(to.abort, "ncclCommAbort");
  from.find(to.group_start, "ncclGroupStart");
  from.find(to.group_end, "ncclGroupEnd");
  from.find(to.async_error, "ncclCommGetAsyncError");
  from.find(to.error_string, "ncclGetErrorString");
  from.find(to.last_error, "ncclGetLastError");
  from.find(to.all_gather, "ncclAllGather");
  from.find(to.reduce_scatter, "ncclReduceScatter");
  from.find(to.all_reduce, "ncclAllReduce");
  from.find(to.broadcast, "ncclBroadcast");
  if (version >= kRegistersBuffers) {
    from.find(to.memory_allocate, "ncclMemAlloc");
    from.find(to.memory_free, "ncclMemFree");
    from.find(to.register_memory, "ncclCommRegister");
    from.find(to.deregister_memory, "ncclCommDeregister");
  }
  return to;
}

// Once: a library that is missing is looked for by every rank, at the same time.
struct Opened {
  std::optional<Library> library;
  std::string problem;
};
Opened try_to_open() try { return {.library = open(), .problem = ""}; } catch (const Error& error) {
  return {.library = std::nullopt, .problem = error.what()};
}

}  // namespace

const Library& library() {
  static const Opened opened = try_to_open();
  if (!opened.library) throw Error(opened.problem);
  return *opened.library;
}

}  // namespace fsdp::comm::nccl
