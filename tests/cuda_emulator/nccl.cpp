// The part of NCCL that the project calls, over ranks that are threads of a process or processes of
// a host: a collective is a task of an emulated GPU's stream, and an engine of the host's
// transports runs it. A communicator comes into being when all its ranks have asked for it, as with
// nonblocking NCCL; an aborted one ends the tasks that wait in it.
// Read next: comm/nccl_library.h, nccl_meeting.h.
//
// [Note: in progress] As strict as NCCL 2.18 to 2.30 (init.cc, group.cc). Every call on a
// nonblocking communicator leaves it in progress until ncclCommGetAsyncError has said kSuccess, and
// a further call before that is an invalid argument (ncclCommEnsureReady). ncclCommSplit returns
// kSuccess at once, leaves the child null, and has the *parent* in progress until the child is
// there. NCCL would let a caller pass that did not ask but was late enough; this one does not.
//
// [Note: aborts wait] ncclCommAbort ends the collectives of this rank alone, and blocks, also on a
// nonblocking communicator (group.cc: destroyFlag), until
// - all that was launched on the communicator is over (init.cc, commDestroySync): a collective that
//   is queued behind another communicator's never is, before that one's flag is set, too;
// - its peers have aborted or destroyed theirs (proxy.cc: "we cannot let proxy thread exit if we
//   still have peer connections"), as ranks of one host do that are processes. Ranks of a process
//   do not wait for each other; here they do. Settings::nccl_aborts_alone takes this rule away.
// Between ncclGroupStart and ncclGroupEnd all flags are set first.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <unistd.h>

#include "comm/host_collectives.h"
#include "comm/nccl_library.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/cuda_emulator/nccl_meeting.h"
#include "tests/cuda_emulator/scheduler.h"

namespace fsdp::emulator {

static std::atomic<int64_t> registrations{0};
int64_t nccl_registrations() { return registrations; }
static std::atomic<int64_t> uses_of_freed{0};
int64_t nccl_uses_of_freed() { return uses_of_freed; }

}  // namespace fsdp::emulator

namespace fsdp::comm::nccl {
namespace {

using emulator::NcclMeeting;
using emulator::registrations;

constexpr int kVersion = 23007;
constexpr auto kForEver = std::chrono::hours(1);  // NCCL knows no timeout

std::mutex mutex;  // of what follows
std::set<Comm> alive;
std::string warned;  // the last warning of NCCL in this process

}  // namespace

struct CommContent {
  std::shared_ptr<NcclMeeting> meeting;
  std::shared_ptr<NcclMeeting::Seat> seat;  // of the meeting
  int meeting_rank;
  std::string identity;  // the same on all ranks of the group
  int splits = 0;
  NcclMeeting::Group group = {};                // without seats: not all are there yet
  std::shared_ptr<GroupState> state = nullptr;  // null, too
  std::shared_ptr<DirectEngine> engine = nullptr;
  std::shared_ptr<const PeerWindow> everything = nullptr;  // of ranks that are threads
  // Collectives that are not over.
  std::shared_ptr<std::atomic<int>> launched = std::make_shared<std::atomic<int>>(0);
  // See [Note: in progress]: true, once asked, when that is over. Null: nothing is in progress.
  std::function<bool()> over = nullptr;
  Result failed = kSuccess;                      // of a call, which said that it was in progress
  std::unique_ptr<CommContent> child = nullptr;  // of a split that is in progress
  // Of the device; see Settings::nccl_bytes.
  void* made_with = nullptr;
  std::map<Collective, void*> connected_with = {};
};

namespace {

std::unique_ptr<CommContent> arrive(const std::string& identity, int ranks, int rank, int color,
                                    int key) {
  const auto meeting = NcclMeeting::at(identity, ranks);
  const std::shared_ptr<NcclMeeting::Seat> seat(meeting, &meeting->seat(rank));
  seat->sit(color, key);
  return std::make_unique<CommContent>(
      CommContent{meeting, seat, rank, identity + "." + std::to_string(color)});
}

int ranks_of(Comm comm) { return static_cast<int>(comm->group.seats.size()); }

Result warn(std::string text) {
  const std::lock_guard lock(mutex);
  warned = std::move(text);
  return kUnhandledCudaError;
}

// An allocation that fails is told after its cause, whatever that is (alloc.h).
Result take_buffer(void** buffer) {
  const uint64_t bytes = emulator::settings().nccl_bytes;
  if (!emulator::context_lost() && (bytes == 0 || cudaMalloc(buffer, bytes) == cudaSuccess)) {
    return kSuccess;
  }
  return warn("Failed to CUDA calloc " + std::to_string(bytes) + " bytes");
}

Comm give(std::unique_ptr<CommContent> comm) {
  const std::lock_guard lock(mutex);
  alive.insert(comm.get());
  return comm.release();
}

bool freed(Comm comm) {
  const std::lock_guard lock(mutex);
  if (alive.contains(comm)) return false;
  ++emulator::uses_of_freed;
  return true;
}

bool ready(CommContent& comm) {
  if (comm.engine) return true;
  const auto group = comm.meeting->group_of(comm.meeting_rank);
  if (!group || !(comm.state = comm.meeting->state_of(*group))) return false;
  comm.group = *group;
  std::vector<int> members(group->seats.size());
  std::iota(members.begin(), members.end(), 0);
  const bool threads = group->one_process();  // which share the address space
  comm.engine =
      std::make_shared<DirectEngine>(HostGroup(comm.state, group->rank, members, "nccl", kForEver),
                                     threads ? Staging{} : comm.meeting->staging_of(*group));
  if (threads) {
    comm.everything = std::make_shared<PeerWindow>(
        PeerWindow{1, std::vector<uintptr_t>(members.size(), 0), nullptr});
  }
  return true;
}

Result get_unique_id(UniqueId* id) {
  static std::atomic<int> made{0};
  *id = {};
  // A process that was killed may have left its pages, and another one may have its number.
  const std::string text = std::to_string(::getpid()) + "." + std::to_string(made++) + "." +
                           std::to_string(std::random_device()());
  std::memcpy(id->bytes, text.data(), text.size());
  return kSuccess;
}

// A config that a test expects: of another one nobody would notice that it was not passed on.
bool expected(const Config& config) {
  const int wanted = emulator::settings().nccl_max_ctas;
  const bool known = config.size == sizeof config && config.magic == Config{}.magic;
  return known && config.blocking == 0 &&
         config.max_ctas == (wanted > 0 ? wanted : Config{}.max_ctas);
}

// Whether a call may use the communicator: see [Note: in progress].
bool usable(Comm comm) { return comm && !freed(comm) && !comm->over && comm->failed == kSuccess; }

// NCCL's thread needs a moment for what the call has begun: the first who asks is too early.
Result begun(Comm comm) {
  comm->over = [asked = false]() mutable { return std::exchange(asked, true); };
  return kInProgress;
}

Result init_rank(Comm* comm, int ranks, UniqueId id, int rank, Config* config) {
  if (!expected(*config)) return kInvalidArgument;
  auto made = arrive(id.bytes, ranks, rank, 0, rank);
  if (const Result took = take_buffer(&made->made_with); took != kSuccess) return took;
  *comm = give(std::move(made));
  (*comm)->over = [made = *comm] { return ready(*made); };
  return kInProgress;
}

Result split(Comm parent, int color, int key, Comm* comm, Config* config) {
  if (!expected(*config) || !usable(parent)) return kInvalidArgument;
  *comm = nullptr;
  const std::string identity = parent->identity + "-" + std::to_string(parent->splits++);
  parent->child = arrive(identity, ranks_of(parent), parent->group.rank, color, key);
  if (const Result took = take_buffer(&parent->child->made_with); took != kSuccess) return took;
  parent->over = [parent, comm] {
    if (!ready(*parent->child)) return false;
    *comm = give(std::move(parent->child));
    return true;
  };
  return kSuccess;
}

Result async_error(Comm comm, Result* state) {
  if (!comm || freed(comm)) return kInvalidArgument;
  if (const int injected = emulator::settings().nccl_error; injected != 0) {
    warn("the emulator was told to say so");
    *state = static_cast<Result>(injected);
    return kSuccess;
  }
  if (comm->failed != kSuccess) {
    *state = comm->failed;
    return kSuccess;
  }
  if (comm->over && comm->over()) comm->over = nullptr;
  *state = comm->over ? kInProgress : kSuccess;
  return kSuccess;
}

Result finalize(Comm comm) { return usable(comm) ? begun(comm) : kInvalidArgument; }

Result drop(Comm comm) {
  if (comm->made_with) cudaFree(comm->made_with);
  for (const auto& [collective, buffer] : comm->connected_with) {
    if (buffer) cudaFree(buffer);
  }
  {
    const std::lock_guard lock(mutex);
    alive.erase(comm);
  }
  comm->seat->gone = 1;
  delete comm;
  return kSuccess;
}

Result destroy(Comm comm) { return usable(comm) ? drop(comm) : kInvalidArgument; }

thread_local int group_depth = 0;
thread_local std::vector<Comm> aborted_in_group;

void wait_until(const std::function<bool()>& condition) {
  while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// See [Note: aborts wait].
Result reclaim(Comm comm) {
  wait_until([&] { return *comm->launched == 0; });
  if (!emulator::settings().nccl_aborts_alone) {
    wait_until([&] { return !comm->group.peer_lives(); });
  }
  return drop(comm);
}

Result abort(Comm comm) {
  comm->seat->aborted = 1;
  if (comm->state) HostGroup::abort(*comm->state, "ncclCommAbort", comm->group.rank);
  if (group_depth == 0) return reclaim(comm);
  aborted_in_group.push_back(comm);
  return kSuccess;
}

Result group_start() {
  ++group_depth;
  return kSuccess;
}

Result group_end() {
  if (group_depth == 0) return kInvalidUsage;
  if (--group_depth > 0) return kSuccess;
  for (const Comm comm : std::exchange(aborted_in_group, {})) reclaim(comm);
  return kSuccess;
}

// The first collective of a kind connects the ranks for it.
Result may_collect(Comm comm, Collective collective) {
  if (const auto hook = emulator::settings().nccl_call) hook();
  if (!usable(comm)) return kInvalidArgument;
  const auto [buffer, fresh] = comm->connected_with.try_emplace(collective, nullptr);
  Result found = fresh ? take_buffer(&buffer->second) : kSuccess;
  if (found == kSuccess && emulator::context_lost()) {
    found = warn("Cuda failure 'unspecified launch failure'");  // checks.h
  }
  if (found == kSuccess) return kSuccess;
  comm->failed = found;
  return kInProgress;
}

DType dtype_of(DataType type) {
  switch (type) {
    case kInt32:
      return DType::kI32;
    case kInt64:
      return DType::kI64;
    case kFloat16:
      return DType::kF16;
    case kFloat32:
      return DType::kF32;
    case kFloat64:
      return DType::kF64;
    case kBFloat16:
      return DType::kBF16;
  }
  fail("nccl: dtype {}", static_cast<int>(type));
}

ReduceOp op_of(RedOp op) {
  return op == kSum ? ReduceOp::kSum : op == kMax ? ReduceOp::kMax : ReduceOp::kAverage;
}

// Collectives run on the receiving memory.
void put_in_place(const void* send, void* to, size_t bytes, void* stream) {
  if (send == to) return;
  cudaMemcpyAsync(to, send, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream));
}

Result enqueue(Comm comm, HostCall call, const void* data, void* stream) {
  if (ranks_of(comm) == 1) {  // the host's collectives are never asked for these
    const auto bytes = static_cast<size_t>(call.numel) * size_of(call.dtype);
    if (call.output) put_in_place(data, call.output, bytes, stream);
    return begun(comm);
  }
  call.data = static_cast<std::byte*>(const_cast<void*>(data));
  call.window = comm->everything;
  call.offset = reinterpret_cast<uintptr_t>(data);
  // A stream that has failed drops its tasks, which are over then, too.
  ++*comm->launched;
  const std::shared_ptr<void> over(nullptr, [count = comm->launched](void*) { --*count; });
  auto task = [engine = comm->engine, call, seat = comm->seat, over] {
    try {
      engine->run(call);
    } catch (const Error&) {  // a peer's abort ends nothing here
      wait_until([&] { return seat->aborted != 0; });
      throw;
    }
  };
  emulator::enqueue_task(static_cast<cudaStream_t>(stream), "nccl", std::move(task));
  return begun(comm);
}

int64_t all_slots(Comm comm, size_t count) { return static_cast<int64_t>(count) * ranks_of(comm); }

Result all_gather(const void* send, void* receive, size_t count, DataType type, Comm comm,
                  void* stream) {
  if (const Result may = may_collect(comm, Collective::kAllGather); may != kSuccess) return may;
  const size_t slot = count * size_of(dtype_of(type));
  put_in_place(send,
               static_cast<std::byte*>(receive) + static_cast<size_t>(comm->group.rank) * slot,
               slot, stream);
  return enqueue(comm,
                 {.collective = Collective::kAllGather,
                  .dtype = dtype_of(type),
                  .numel = all_slots(comm, count)},
                 receive, stream);
}

Result reduce_scatter(const void* send, void* receive, size_t count, DataType type, RedOp op,
                      Comm comm, void* stream) {
  if (const Result may = may_collect(comm, Collective::kReduceScatter); may != kSuccess) return may;
  return enqueue(comm,
                 {.collective = Collective::kReduceScatter,
                  .op = op_of(op),
                  .dtype = dtype_of(type),
                  .numel = all_slots(comm, count),
                  .output = static_cast<std::byte*>(receive)},
                 send, stream);
}

Result all_reduce(const void* send, void* receive, size_t count, DataType type, RedOp op, Comm comm,
                  void* stream) {
  if (const Result may = may_collect(comm, Collective::kAllReduce); may != kSuccess) return may;
  put_in_place(send, receive, count * size_of(dtype_of(type)), stream);
  return enqueue(comm,
                 {.collective = Collective::kAllReduce,
                  .op = op_of(op),
                  .dtype = dtype_of(type),
                  .numel = static_cast<int64_t>(count)},
                 receive, stream);
}

Result broadcast(const void* send, void* receive, size_t count, DataType type, int root, Comm comm,
                 void* stream) {
  if (const Result may = may_collect(comm, Collective::kBroadcast); may != kSuccess) return may;
  if (comm->group.rank == root)
    put_in_place(send, receive, count * size_of(dtype_of(type)), stream);
  return enqueue(comm,
                 {.collective = Collective::kBroadcast,
                  .dtype = dtype_of(type),
                  .root = root,
                  .numel = static_cast<int64_t>(count)},
                 receive, stream);
}

}  // namespace

const Library& library() {
  static const Library table = {
      .get_version =
          [](int* version) {
            *version = kVersion;
            return kSuccess;
          },
      .get_unique_id = get_unique_id,
      .init_rank = init_rank,
      .split = split,
      .finalize = finalize,
      .destroy = destroy,
      .abort = abort,
      .group_start = group_start,
      .group_end = group_end,
      .async_error = async_error,
      .error_string =
          [](Result result) {
            return result == kUnhandledCudaError ? "unhandled cuda error" : "an error of NCCL";
          },
      .last_error =
          [](Comm) {
            thread_local std::string text;
            const std::lock_guard lock(mutex);
            text = warned;
            return text.c_str();
          },
      .all_gather = all_gather,
      .reduce_scatter = reduce_scatter,
      .all_reduce = all_reduce,
      .broadcast = broadcast,
      .memory_allocate =
          [](void** data, size_t bytes) {
            return cudaMalloc(data, bytes) == cudaSuccess ? kSuccess : kInvalidArgument;
          },
      .memory_free =
          [](void* data) { return cudaFree(data) == cudaSuccess ? kSuccess : kInvalidArgument; },
      .register_memory =
          [](Comm comm, void* data, size_t, void** handle) {
            if (!usable(comm)) return kInvalidArgument;
            *handle = data;
            ++registrations;
            return kSuccess;
          },
      .deregister_memory = [](Comm comm,
                              void*) { return usable(comm) ? kSuccess : kInvalidArgument; },
  };
  return table;
}

}  // namespace fsdp::comm::nccl
