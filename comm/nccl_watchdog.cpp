// The watchdog's loop.
#include "comm/nccl_watchdog.h"

#include <algorithm>
#include <array>
#include <utility>

namespace fsdp::comm {
namespace {

constexpr std::chrono::milliseconds kLooks(10);  // between two: also how exact the ring's times are

std::string text_of(const NcclWatchdog::Call& call) {
  const RingSnapshot ring = call.ring->snapshot();
  const auto found =
      std::find_if(ring.records.begin(), ring.records.end(),
                   [&](const auto& record) { return record.sequence == call.sequence; });
  return found == ring.records.end() ? fmt::format("call {}", call.sequence) : found->what();
}

}  // namespace

// NCCL's status for an allocation is that of any error of CUDA, so its words are looked at:
// checks.h, cudawrap.h and alloc.h of NCCL 2.18 to 2.30. The last two come after any failure of the
// call.
std::string told_by_nccl(const nccl::Library& library, nccl::Result result, nccl::Comm comm) {
  const std::string said = library.last_error(comm);
  const bool allocation = std::ranges::any_of(
      std::array{"out of memory", "Failed to CUDA calloc", "Failed to CUDA malloc"},
      [&](const char* text) { return said.find(text) != said.npos; });
  return fmt::format("{}: {}{}", library.error_string(result), said,
                     allocation ? "; where the GPU has too little free memory (nvidia-smi says who "
                                  "holds it), runtime.gpu_transport: host does without NCCL"
                                : "");
}

NcclWatchdog::NcclWatchdog(const nccl::Library& library, const NcclOptions& options)
    : library_(library), options_(options), thread_([this] { run(); }) {}

NcclWatchdog::~NcclWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  thread_.join();
  if (groups_.empty()) return;
  const std::string reason = "a rank ended in an error";
  if (options_.failed) options_.failed(reason);  // or the peers would wait for this rank
  give_up(reason);
}

void NcclWatchdog::add(nccl::Comm comm, std::string name) {
  const std::lock_guard lock(mutex_);
  // One that came too late to be aborted with the others stays as it is: nobody uses it.
  if (!reason_.empty()) throw MachineError(fmt::format("[nccl] {}: {}", name, reason_));
  groups_.push_back({comm, std::move(name)});
}

bool NcclWatchdog::remove(nccl::Comm comm) {
  const std::lock_guard lock(mutex_);
  return std::erase_if(groups_, [&](const Group& group) { return group.comm == comm; }) > 0;
}

void NcclWatchdog::watch(Call call) {
  const std::lock_guard lock(mutex_);
  calls_.push_back({std::move(call)});
}

void NcclWatchdog::check(const std::string& name) const {
  call(name, [] {});
}

void NcclWatchdog::run() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    wake_.wait_for(lock, kLooks);
    const std::optional<std::string> problem = look();
    if (!problem) continue;
    lock.unlock();
    if (options_.failed) options_.failed(*problem);
    return give_up(*problem);
  }
  look();  // the ring is complete for those who read it after the end
}

// Aborted communicators end the kernels that wait in them, so that streams can be waited for. The
// aborts may wait for peers, and whoever asks meanwhile is not to wait with them.
void NcclWatchdog::give_up(const std::string& reason) {
  std::vector<Group> aborted;
  {
    const std::lock_guard lock(mutex_);
    reason_ = reason;
    aborted = std::exchange(groups_, {});
    calls_.clear();
  }
  const bool grouped = library_.group_start() == nccl::kSuccess;
  for (const Group& group : aborted) library_.abort(group.comm);
  if (grouped) library_.group_end();
}

std::optional<std::string> NcclWatchdog::look() {
  if (const std::string reason = options_.given_up ? options_.given_up() : ""; !reason.empty()) {
    return reason;
  }
  for (Watched& watched : calls_) {
    if (auto problem = look_at(watched)) return problem;
  }
  std::erase_if(calls_, [](const Watched& watched) { return !watched.call.done; });
  for (const Group& group : groups_) {
    if (auto problem = look_at(group)) return problem;
  }
  return std::nullopt;
}

std::optional<std::string> NcclWatchdog::look_at(Watched& watched) try {
  Call& call = watched.call;
  if (call.begun) {
    if (!call.begun->ready()) return std::nullopt;
    call.begun = nullptr;
    watched.patience.emplace(options_.timeout);
    call.ring->start(call.sequence);
  }
  if (call.done->ready()) {
    call.done = nullptr;
    call.ring->finish(call.sequence);
    return std::nullopt;
  }
  if (watched.patience && !watched.patience->over()) return std::nullopt;
  return fmt::format("no end of {} ({}) within {} s: a rank did not come to it", text_of(call),
                     call.ring->name(), std::chrono::duration<double>(options_.timeout).count());
} catch (const std::exception& error) {  // a stream that failed
  return fmt::format("{} ({}): {}", text_of(watched.call), watched.call.ring->name(), error.what());
}

std::optional<std::string> NcclWatchdog::look_at(const Group& group) const {
  nccl::Result state = nccl::kSuccess;
  const nccl::Result asked = library_.async_error(group.comm, &state);
  const nccl::Result worst = asked != nccl::kSuccess ? asked : state;
  if (worst == nccl::kSuccess || worst == nccl::kInProgress) return std::nullopt;
  return fmt::format("{}: {}", group.name, told_by_nccl(library_, worst, group.comm));
}

}  // namespace fsdp::comm
