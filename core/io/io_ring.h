// Several reads or writes of a file at once, by io_uring: what an NVMe drive needs to give its
// rate. Not here: one after the other, where there is no ring (core/io/state_file.h). io_ring.cpp
// is built where liburing is found, io_ring_absent.cpp elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

struct FileRequest {
  bool writes = false;
  uint64_t offset = 0;  // in the file
  std::byte* memory = nullptr;
  size_t bytes = 0;
  int64_t result = 0;  // bytes done, which may be fewer, or -errno
};

// Used by one thread at a time.
class IoRing {
 public:
  virtual ~IoRing() = default;
  // Null where the program was built without liburing, or the system refuses a ring, as seccomp
  // does; `problem` says which.
  static std::unique_ptr<IoRing> make(std::string& problem);
  // Does all of them, kept in flight together, and waits. Error when the ring itself fails.
  virtual void run(int descriptor, std::vector<FileRequest>& requests) = 0;
};

}  // namespace fsdp
