// Control messages, choice of the path, and the windows that allocate() makes.
#include "comm/mpi_communicator.h"

#include <algorithm>

#include "comm/mpi_engine.h"
#include "comm/patience.h"

namespace fsdp::comm {
namespace {

constexpr size_t kCacheLine = 64;
constexpr std::string_view kExchange = "exchange";

size_t rounded_to_line(size_t bytes) { return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine; }

PeerWindow view_of(std::shared_ptr<const SharedWindow> window, uint64_t id, size_t offset) {
  PeerWindow view;
  view.id = id;
  for (int r = 0; r < window->size(); ++r) {
    view.bases.push_back(reinterpret_cast<uintptr_t>(window->data(r)) + offset);
  }
  view.mapped = std::const_pointer_cast<SharedWindow>(std::move(window));
  return view;
}

// A window's region of this rank, counted in a ledger.
class SharedBuffer final : public CommBuffer {
 public:
  SharedBuffer(std::shared_ptr<const PeerWindow> window, int rank, size_t bytes, Backend& backend,
               MemoryCategory category, std::shared_ptr<MpiJob> job)
      : window_(std::move(window)),
        data_(reinterpret_cast<void*>(window_->bases[static_cast<size_t>(rank)])),
        bytes_(bytes),
        backend_(backend),
        category_(category),
        job_(std::move(job)) {
    backend_.ledger().add(category_, bytes_);
    job_->shared_bytes += bytes_;
  }
  // Like other memory, it goes in the order of the compute stream. (Collectives on other streams
  // hold it by themselves.)
  ~SharedBuffer() override {
    backend_.ledger().subtract(category_, bytes_);
    job_->shared_bytes -= bytes_;
    try {
      backend_.host_task(backend_.compute_stream(), "release", 0, [window = window_] {});
    } catch (const std::exception&) {  // no memory for the task: unmapped now
    }
  }
  void* data() const override { return data_; }
  size_t bytes() const override { return bytes_; }

 private:
  std::shared_ptr<const PeerWindow> window_;
  void* data_;
  size_t bytes_;
  Backend& backend_;
  MemoryCategory category_;
  std::shared_ptr<MpiJob> job_;
};

}  // namespace

MpiCommunicator::MpiCommunicator(std::shared_ptr<MpiJob> job, std::shared_ptr<MpiGroup> control,
                                 const std::string& name)
    : HostCommunicator(control->rank(), name, control->world_ranks(), job->rings),
      job_(std::move(job)),
      control_(std::move(control)) {
  if (size() == 1) return;
  const bool one_host = control_->ranks_of_host()->size() == size();
  if (!one_host || !use_shared_memory()) use_mpi();
}

bool MpiCommunicator::use_shared_memory() {
  const size_t half =
      std::max(job_->options.staging_bytes, kCacheLine * static_cast<size_t>(size()));
  const size_t state = rounded_to_line(HostGroup::state_bytes(size()));
  const size_t bytes = state + 2 * half;
  const auto [window, problem] = make_window(bytes, PeerAccess::kReadWrite);
  if (!window) {
    if (job_->options.shared_memory) {
      note("collectives go through MPI, which is slower: no shared memory: " + problem);
    }
    return false;
  }
  job_->shared_bytes += bytes;  // for good: a communicator is small and lives long
  if (rank() == 0) HostGroup::create_state(window->data(0), size());
  barrier();
  auto staging = std::make_shared<PeerWindow>(view_of(window, 0, state));
  std::shared_ptr<GroupState> shared(staging,
                                     static_cast<GroupState*>(static_cast<void*>(window->data(0))));
  job_->abort_list.add(shared);
  group_.emplace(
      shared, rank(), ring().members(), name(), job_->options.timeout,
      [job = job_](const JobAbort& abort) { job->abort_list.hear(abort); }, rings()->progress());
  use(std::make_shared<DirectEngine>(*group_, Staging{staging, half / kCacheLine * kCacheLine}));
  return true;
}

void MpiCommunicator::note(std::string reason) {
  if (job_->notice.empty()) job_->notice = std::move(reason);
}

void MpiCommunicator::use_mpi() {
  use(std::make_shared<MpiEngine>(MpiGroup::duplicate(control_->comm()),
                                  MpiEngine::Options{.name = name(),
                                                     .piece_bytes = job_->options.staging_bytes,
                                                     .timeout = job_->options.timeout,
                                                     .abort_list = {job_, &job_->abort_list},
                                                     .progress = rings()->progress()}));
}

SharedWindow::Result MpiCommunicator::make_window(size_t bytes, PeerAccess access) {
  const size_t used = job_->shared_bytes;
  const size_t limit = job_->options.limit_bytes;
  std::string refusal;
  if (!job_->options.shared_memory) {  // said to the others, who may have other options
    refusal = "turned off";
  } else if (bytes > limit || used > limit - bytes) {
    refusal = fmt::format("{} bytes more than {} would pass the limit of {}", bytes, used, limit);
  }
  return SharedWindow::create([this](const std::string& mine) { return exchange(mine); },
                              {rank(), size(), bytes, access, refusal});
}

std::shared_ptr<CommBuffer> MpiCommunicator::allocate(Backend& backend, size_t bytes,
                                                      MemoryCategory category) {
  if (bytes == 0 || !group_ || !backend.host_reaches_memory()) {
    return std::make_shared<BackendBuffer>(backend, bytes, category);
  }
  ++windows_;
  const auto [window, problem] = make_window(bytes, PeerAccess::kRead);
  if (!window) {
    note("collectives copy through staging, which is slower: no shared memory: " + problem);
    return std::make_shared<BackendBuffer>(backend, bytes, category);
  }
  return std::make_shared<SharedBuffer>(register_window(window), rank(), bytes, backend, category,
                                        job_);
}

std::shared_ptr<const PeerWindow> MpiCommunicator::register_window(
    std::shared_ptr<const SharedWindow> window) {
  const size_t bytes = window->bytes();
  auto view = std::make_shared<const PeerWindow>(view_of(std::move(window), windows_, 0));
  const uintptr_t begin = view->bases[static_cast<size_t>(rank())];
  std::erase_if(registered_, [](const Registered& r) { return r.window.expired(); });
  registered_.push_back({begin, begin + bytes, view});
  return view;
}

void MpiCommunicator::locate(const Tensor& buffer, HostCall& call) {
  const auto begin = reinterpret_cast<uintptr_t>(call.data);
  for (const Registered& r : registered_) {
    if (begin < r.begin || begin + buffer.bytes() > r.end) continue;
    call.window = r.window.lock();
    call.offset = begin - r.begin;
    if (call.window) return;
  }
}

std::vector<std::string> MpiCommunicator::do_exchange(const std::string& mine) {
  Patience patience(job_->options.timeout, rings()->progress());
  return exchange_strings(*control_, mine, [&] {
    check_not_aborted();
    FSDP_CHECK(!patience.over(),
               "[exchange] {}: rank {} waited {:g} s for another rank (group of {})", name(),
               job_rank(), static_cast<double>(job_->options.timeout.count()) / 1000, size());
  });
}

std::unique_ptr<Communicator> MpiCommunicator::split(const SplitRule& rule,
                                                     const std::string& name) {
  check_not_aborted();
  const SplitGroup part = group_of_split(rule);
  return std::make_unique<MpiCommunicator>(
      job_, MpiGroup::split(control_->comm(), part.color, part.rank), name);
}

bool MpiCommunicator::abort(const std::string& reason) {
  const std::string said = fmt::format("rank {} gave up: {}", job_rank(), reason);
  const bool first = job_->abort_list.abort(said, job_rank());
  // Two ranks that give up at the same moment, each in a group of its own, both find another one
  // before them. The group of all has one reason, and one rank that it is of.
  return group_ ? group_->abort(said) : first;
}

void MpiCommunicator::check_not_aborted() const {
  job_->abort_list.check(kExchange);
  if (group_) group_->check_not_aborted(kExchange);
}

}  // namespace fsdp::comm
