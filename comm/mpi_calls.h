// MPI in the terms of this project: Errors instead of codes, waits that sleep, communicators that
// free themselves. Read next: comm/mpi_engine.h, comm/mpi_communicator.h.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <mpi.h>

namespace fsdp::comm {

void check_mpi(int code, std::string_view call);  // Error "[MPI_Bcast] ..." unless MPI_SUCCESS

// Owns one MPI_Comm, with errors returned instead of fatal.
class MpiGroup {
 public:
  // Collective over `parent`: a private copy of it.
  static std::shared_ptr<MpiGroup> duplicate(MPI_Comm parent);
  // Collective over `parent`.
  static std::shared_ptr<MpiGroup> split(MPI_Comm parent, int color, int key);
  ~MpiGroup();
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  MPI_Comm comm() const { return comm_; }
  int rank() const;
  int size() const;
  std::vector<int> world_ranks() const;             // of its ranks, in MPI_COMM_WORLD
  std::shared_ptr<MpiGroup> ranks_of_host() const;  // collective: of this group, on this host

 private:
  explicit MpiGroup(MPI_Comm comm);
  MPI_Comm comm_;
};

// Waits without taking the core from the compute threads: tests, and sleeps ever longer. `stop` is
// called between tests and may throw; MPI may still write into the request's `buffers` then, so
// they are kept for the rest of the (failing) process.
void wait_asleep(MPI_Request& request, const std::shared_ptr<void>& buffers,
                 const std::function<void()>& stop);

// Every rank's message, by rank, on every rank; asleep while it waits.
std::vector<std::string> exchange_strings(const MpiGroup& group, const std::string& mine,
                                          const std::function<void()>& stop);

}  // namespace fsdp::comm
