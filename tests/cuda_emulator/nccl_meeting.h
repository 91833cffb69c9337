// How ranks make communicators of the stand-in for NCCL (nccl.cpp) together, and the state of each
// rank as its peers see it: pages of /dev/shm, mapped by processes of one host and, once, by a
// process whose threads are ranks.
// Not here: when a call of NCCL is over, collectives.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/host_collectives.h"

namespace fsdp::emulator {

class NcclMeeting {
 public:
  // A rank, as its peers see it.
  struct alignas(64) Seat {
    int color = 0, key = 0;
    std::atomic<int> process{0};  // 0: nobody has come yet
    std::atomic<int> has_state{0};
    std::atomic<int> aborted{0};
    std::atomic<int> gone{0};  // aborted or destroyed: its connections are closed

    void sit(int its_color, int its_key);
  };
  // A color's ranks: their number, the own one among them, and their seats by rank.
  struct Group {
    int rank = 0;
    std::vector<Seat*> seats;
    int leader = 0;  // its first rank, as a rank of the meeting

    bool one_process() const;
    // Whether a peer has neither aborted nor destroyed its communicator, nor died.
    bool peer_lives() const;
  };

  // `name`: the same on all ranks of this meeting, and of no other one on this host.
  static std::shared_ptr<NcclMeeting> at(const std::string& name, int ranks);
  ~NcclMeeting();
  NcclMeeting(const NcclMeeting&) = delete;
  NcclMeeting& operator=(const NcclMeeting&) = delete;

  Seat& seat(int rank) { return seats_[rank]; }
  // Nullopt: not all ranks have come.
  std::optional<Group> group_of(int rank);
  // The group's state, which its first rank makes; null: that rank has not come yet.
  std::shared_ptr<comm::GroupState> state_of(const Group& group);
  // Where ranks that are processes pass data.
  comm::Staging staging_of(const Group& group);

 private:
  NcclMeeting(std::string path, int ranks);
  std::byte* room_of(int leader) { return pages_ + room_bytes_ * static_cast<size_t>(1 + leader); }

  const std::string path_;
  const int ranks_;
  size_t room_bytes_ = 0;  // of the seats, and of each group
  size_t bytes_ = 0;
  std::byte* pages_ = nullptr;
  Seat* seats_ = nullptr;
  std::weak_ptr<NcclMeeting> self_;
};

}  // namespace fsdp::emulator
