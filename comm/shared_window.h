// Memory that processes of one host can read directly: every rank makes a region (memfd, so neither
// /dev/shm nor its size limit plays a part) and maps those of its peers through /proc/<pid>/fd.
// Pages are reserved when the window is made, after a look at how many there are: lack of memory is
// a problem reported then, never a SIGBUS later. Not here: which tensors live in a window
// (comm/mpi_communicator.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"

namespace fsdp::comm {

// One mapping of pages; unmapped with the object.
class Mapping {
 public:
  Mapping(int fd, size_t bytes, bool writable);  // Error when the kernel refuses
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

enum class PeerAccess : uint8_t { kRead, kReadWrite };

class SharedWindow {
 public:
  using Exchange = std::function<std::vector<std::string>(const std::string& mine)>;

  struct Result;
  struct Request {
    int rank = 0;
    int ranks = 1;
    size_t bytes = 0;  // of every rank's region; the same on all
    PeerAccess access = PeerAccess::kRead;
    std::string refusal;  // not empty: this rank wants none, and why
  };
  // Collective over the ranks that `exchange` connects. Either all ranks get a window or none.
  static Result create(const Exchange& exchange, const Request& request);

  std::byte* data(int rank) const { return regions_[static_cast<size_t>(rank)]->data(); }
  size_t bytes() const { return bytes_; }
  int size() const { return static_cast<int>(regions_.size()); }

 private:
  SharedWindow() = default;
  size_t bytes_ = 0;
  std::vector<std::unique_ptr<Mapping>> regions_;  // by rank
};

struct SharedWindow::Result {
  std::shared_ptr<const SharedWindow> window;  // null: there is a problem
  std::string problem;                         // "rank 1: no memory for 4096 bytes: ..."
};

}  // namespace fsdp::comm
