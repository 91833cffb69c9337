// Contract: tests/cuda_emulator/nccl_meeting.h.
#include "tests/cuda_emulator/nccl_meeting.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

namespace fsdp::emulator {
namespace {

constexpr size_t kHalf = size_t{1} << 16;  // of a rank's staging
constexpr size_t kPage = 4096;

size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
size_t state_bytes(int ranks) { return whole_pages(comm::HostGroup::state_bytes(ranks)); }

}  // namespace

void NcclMeeting::Seat::sit(int its_color, int its_key) {
  color = its_color;
  key = its_key;
  process = ::getpid();  // the last: now the others read the seat
}

bool NcclMeeting::Group::one_process() const {
  return std::ranges::all_of(seats, [](const Seat* seat) { return seat->process == ::getpid(); });
}

bool NcclMeeting::Group::peer_lives() const {
  return std::ranges::any_of(seats, [](const Seat* seat) {
    const bool died = ::kill(seat->process, 0) != 0 && errno == ESRCH;
    return !seat->aborted && !seat->gone && !died;
  });
}

// Threads share the pages: a sanitizer does not see that two mappings are the same memory.
std::shared_ptr<NcclMeeting> NcclMeeting::at(const std::string& name, int ranks) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<NcclMeeting>> known;
  const std::lock_guard lock(mutex);
  if (auto meeting = known[name].lock()) return meeting;
  std::shared_ptr<NcclMeeting> made(new NcclMeeting("/fsdp_emulated_nccl." + name, ranks));
  made->self_ = made;
  known[name] = made;
  return made;
}

NcclMeeting::NcclMeeting(std::string path, int ranks)
    : path_(std::move(path)),
      ranks_(ranks),
      room_bytes_(std::max(whole_pages(static_cast<size_t>(ranks) * sizeof(Seat)),
                           state_bytes(ranks) + static_cast<size_t>(ranks) * 2 * kHalf)),
      bytes_(room_bytes_ * static_cast<size_t>(1 + ranks)) {
  const int fd = ::shm_open(path_.c_str(), O_CREAT | O_RDWR, S_IRUSR | S_IWUSR);
  FSDP_CHECK(fd >= 0, "/dev/shm{}: {}", path_, std::strerror(errno));
  const bool sized = ::ftruncate(fd, static_cast<off_t>(bytes_)) == 0;
  void* pages =
      sized ? ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  const int error = errno;
  ::close(fd);
  FSDP_CHECK(pages != MAP_FAILED, "/dev/shm{}: {}", path_, std::strerror(error));
  pages_ = static_cast<std::byte*>(pages);
  seats_ = reinterpret_cast<Seat*>(pages_);  // zero-filled pages are empty seats
}

NcclMeeting::~NcclMeeting() {
  ::shm_unlink(path_.c_str());  // unless all came: then it has no name any more
  ::munmap(pages_, bytes_);
}

std::optional<NcclMeeting::Group> NcclMeeting::group_of(int rank) {
  std::vector<std::tuple<int, int>> members;  // key, rank
  for (int r = 0; r < ranks_; ++r) {
    if (seats_[r].process == 0) return std::nullopt;
    if (seats_[r].color == seats_[rank].color) members.emplace_back(seats_[r].key, r);
  }
  ::shm_unlink(path_.c_str());  // nobody opens it again
  std::ranges::sort(members);
  Group group{.leader = std::get<1>(members.front())};
  for (const auto& [key, member] : members) {
    if (member == rank) group.rank = static_cast<int>(group.seats.size());
    group.seats.push_back(&seats_[member]);
  }
  return group;
}

std::shared_ptr<comm::GroupState> NcclMeeting::state_of(const Group& group) {
  Seat& leader = *group.seats.front();
  if (group.rank == 0 && !leader.has_state) {
    comm::HostGroup::create_state(room_of(group.leader), static_cast<int>(group.seats.size()));
    leader.has_state = 1;
  }
  if (!leader.has_state) return nullptr;
  return {self_.lock(), reinterpret_cast<comm::GroupState*>(room_of(group.leader))};
}

comm::Staging NcclMeeting::staging_of(const Group& group) {
  comm::PeerWindow window{.id = 1, .bases = {}, .mapped = self_.lock()};
  auto base = reinterpret_cast<uintptr_t>(room_of(group.leader) + state_bytes(ranks_));
  for (size_t i = 0; i < group.seats.size(); ++i, base += 2 * kHalf) window.bases.push_back(base);
  return {std::make_shared<const comm::PeerWindow>(window), kHalf};
}

}  // namespace fsdp::emulator
