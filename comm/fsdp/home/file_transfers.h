// What goes between the device and a file of the host: parameters before a gather, gradients after
// their reduction. A tensor goes in pieces through two buffers of the host's memory, one of which
// the disk fills or empties while the device copies the other. Of all units of a rank.
//
//   load    from_file: read a piece   ->  from_host: copy it to the device
//   store   to_host: copy a piece     ->  to_file: write it
//
// Not here: when (file_home.h); what the host itself works on (paged_tensors.h).
#pragma once

#include <algorithm>
#include <array>

#include "comm/fsdp/home/paged_tensors.h"

namespace fsdp::comm {

// Of the file: the first and the last; of the device: the two between them. All outlive their
// users.
struct TransferStreams {
  Stream &from_file, &from_host, &to_host, &to_file;
};

class FileTransfers {
 public:
  static constexpr size_t kPieceBytes = size_t{16} << 20;

  FileTransfers(Backend& host, const TransferStreams& streams);  // the host outlives it

  // Of tensors of so many bytes, before allocate().
  void expect_loads(size_t bytes) { in_.bytes = std::max(in_.bytes, bytes); }
  void expect_stores(size_t bytes) { out_.bytes = std::max(out_.bytes, bytes); }
  void allocate();

  // to = the tensor in the file, on the device. `written`: since when the file has it; `free`:
  // since when the device's memory may be written. Both may be null. Returns since when it is
  // there.
  EventPtr load(const Tensor& home, const Tensor& to, const EventPtr& written,
                const EventPtr& free);
  struct Stored {
    EventPtr sent;     // the device's memory is free
    EventPtr written;  // the file has it
  };
  // The tensor in the file = from, of the device, where it is there after `there`.
  Stored store(const Tensor& from, const Tensor& home, const EventPtr& there);
  void forget_events();  // all streams are idle

 private:
  struct Buffer {
    Tensor memory;
    EventPtr free;  // may be null
  };
  struct Direction {
    MemoryCategory category;
    size_t bytes = 0;  // of the largest tensor
    std::array<Buffer, 2> buffers = {};
    size_t next = 0;
    Buffer& take() {
      next = 1 - next;
      return buffers[next];
    }
  };
  void allocate(Direction& direction);

  Backend &device_, &host_, &file_;
  TransferStreams streams_;
  Direction in_, out_;
};

}  // namespace fsdp::comm
