// Threads share pointers: a window is the whole address space, an offset is an address.
#include "comm/local_transport.h"

#include <map>
#include <new>
#include <numeric>
#include <optional>
#include <thread>

#include "comm/host_collectives.h"

namespace fsdp::comm {
namespace {

constexpr uint64_t kAddressSpace = 1;  // window id

std::shared_ptr<GroupState> make_state(int size) {
  constexpr std::align_val_t kAlign{64};
  void* memory = ::operator new(HostGroup::state_bytes(size), kAlign);
  HostGroup::create_state(memory, size);
  return {static_cast<GroupState*>(memory),
          [](GroupState* state) { ::operator delete(static_cast<void*>(state), kAlign); }};
}

struct LocalGroup;

// What the ranks of a job share besides their groups.
struct LocalJob {
  LocalOptions options;
  AbortList abort_list;
};

// What the ranks of one group share.
struct LocalGroup {
  LocalGroup(std::shared_ptr<LocalJob> job_, int size)
      : job(std::move(job_)),
        stream_state(make_state(size)),
        host_state(make_state(size)),
        memory(std::make_shared<PeerWindow>(PeerWindow{
            kAddressSpace, std::vector<uintptr_t>(static_cast<size_t>(size), 0), nullptr})),
        mail(static_cast<size_t>(size)) {
    job->abort_list.add(stream_state);
    job->abort_list.add(host_state);
  }
  // The group that the ranks of `color` in split number `split` form; made by the first to ask.
  std::shared_ptr<LocalGroup> child(int split, int color, int size) {
    std::lock_guard lock(mutex);
    auto& group = children[{split, color}];
    if (!group) group = std::make_shared<LocalGroup>(job, size);
    return group;
  }
  void forget(int split, int color) {
    std::lock_guard lock(mutex);
    children.erase({split, color});
  }

  std::shared_ptr<LocalJob> job;
  std::shared_ptr<GroupState> stream_state;  // collectives
  std::shared_ptr<GroupState> host_state;    // exchange
  std::shared_ptr<const PeerWindow> memory;
  std::vector<std::string> mail;  // of exchange, by rank

 private:
  std::mutex mutex;
  std::map<std::pair<int, int>, std::shared_ptr<LocalGroup>> children;
};

class LocalCommunicator final : public HostCommunicator {
 public:
  LocalCommunicator(std::shared_ptr<LocalGroup> group, int rank, const std::vector<int>& members,
                    const std::string& name, std::shared_ptr<CollectiveRings> rings)
      : HostCommunicator(rank, name, members, std::move(rings)),
        group_(std::move(group)),
        host_(group_->host_state, rank, members, name, group_->job->options.timeout, hears(),
              this->rings()->progress()) {
    use(std::make_shared<DirectEngine>(
        HostGroup(group_->stream_state, rank, members, name, group_->job->options.timeout, hears(),
                  this->rings()->progress()),
        Staging{}));
  }

  std::vector<std::string> do_exchange(const std::string& mine) override {
    host_.check_not_aborted("exchange");  // the others may still be reading the last mail
    group_->mail[static_cast<size_t>(rank())] = mine;
    host_.meet("exchange");
    std::vector<std::string> all = group_->mail;
    host_.meet("exchange");  // everybody has read it
    return all;
  }

  std::shared_ptr<CommBuffer> allocate(Backend& backend, size_t bytes,
                                       MemoryCategory category) override {
    return std::make_shared<BackendBuffer>(backend, bytes, category);
  }

  std::unique_ptr<Communicator> split(const SplitRule& rule, const std::string& name) override {
    const int split = splits_++;
    const SplitGroup part = group_of_split(rule);
    auto group = group_->child(split, part.color, static_cast<int>(part.members.size()));
    barrier();  // all have it
    group_->forget(split, part.color);
    return std::make_unique<LocalCommunicator>(std::move(group), part.rank, part.members, name,
                                               rings());
  }

  bool abort(const std::string& reason) override {
    const std::string said = fmt::format("rank {} gave up: {}", job_rank(), reason);
    return group_->job->abort_list.abort(said, job_rank());
  }

  std::string aborted() const override {
    const auto abort = group_->job->abort_list.aborted();
    return abort ? abort->reason : "";
  }

 private:
  HostGroup::Heard hears() const {
    return [job = group_->job](const JobAbort& abort) { job->abort_list.hear(abort); };
  }
  void locate(const Tensor&, HostCall& call) override {
    call.window = group_->memory;
    call.offset = reinterpret_cast<uintptr_t>(call.data);
  }

  void meet_hosts(Collective collective) override { host_.meet(name_of(collective)); }

  std::shared_ptr<LocalGroup> group_;
  HostGroup host_;
  int splits_ = 0;
};

// The first error of any rank.
class FirstError {
 public:
  // `cause`: no other rank has given up before. The others say no more than what they heard.
  void set(const std::string& message, bool cause) {
    std::lock_guard lock(mutex_);
    if (!message_ || (cause && !is_cause_)) message_ = message;
    is_cause_ = is_cause_ || cause;
  }
  void rethrow() const {
    if (message_) throw Error(*message_);
  }

 private:
  std::mutex mutex_;
  std::optional<std::string> message_;
  bool is_cause_ = false;
};

}  // namespace

void run_local_ranks(int ranks, const std::function<void(Communicator& world)>& body,
                     const LocalOptions& options) {
  FSDP_CHECK(ranks >= 1, "[local ranks] number of ranks: expected at least 1, got {}", ranks);
  auto job = std::make_shared<LocalJob>();
  job->options = options;
  const auto group = std::make_shared<LocalGroup>(job, ranks);
  const auto progress = std::make_shared<WorkProgress>(options.storage_timeout);
  FirstError first_error;
  std::vector<int> members(static_cast<size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  const auto run_rank = [&](int rank) {
    LocalCommunicator world(group, rank, members, "world",
                            std::make_shared<CollectiveRings>(progress));
    try {
      body(world);
    } catch (const std::exception& error) {
      first_error.set(ranks == 1 ? error.what() : fmt::format("rank {}: {}", rank, error.what()),
                      world.abort(error.what()));
    } catch (...) {  // for instance a failed REQUIRE of a test
      first_error.set(fmt::format("rank {}: ended by an exception of unknown type", rank),
                      world.abort("exception of unknown type"));
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run_rank, rank);
  for (std::thread& thread : threads) thread.join();
  first_error.rethrow();
}

}  // namespace fsdp::comm
