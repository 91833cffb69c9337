// Tensors whose home is a file, and which are in the host's memory only while the host works on
// them: the parameters, gradient and optimizer state of one shard come and go together.
//
//              bring_in()                     give_back()
//   AT HOME ----------------> IN MEMORY ----------------------> AT HOME
//   (no bytes in memory)      (a lent buffer;  what the host may have changed is written
//                              the host's compute stream has waited for it)
//
// Everything is enqueued; nobody waits. Two buffers are lent in turn: one shard is read while the
// host works on another and a third is written.
// Not here: what the host does with them (optim), copies between a file and the device
// (file_transfers.h).
#pragma once

#include <array>
#include <vector>

#include "core/io/state_file.h"
#include "core/tensor.h"

namespace fsdp::comm {

// Of a file's memory, a whole number of blocks; zeros.
Tensor file_tensor(Backend& file, Shape shape, DType dtype, MemoryCategory category);
// What a copy of the whole tensor takes: from the file's blocks, or into them.
size_t paged_bytes(const Tensor& tensor);
// `bytes` of the host's memory that begin at a multiple of kFileBlock.
Tensor page_memory(Backend& host, size_t bytes, MemoryCategory category);

// The two buffers, and the streams that fill and empty them. Of all shards of a rank.
class PageBuffers {
 public:
  // `in` and `out`: streams of `file`. All outlive this.
  PageBuffers(Backend& host, Backend& file, Stream& in, Stream& out)
      : host_(host), file_(file), in_(in), out_(out) {}

  Backend& host() const { return host_; }
  Backend& file() const { return file_; }
  Stream& in() const { return in_; }
  Stream& out() const { return out_; }
  // When all tensors are known. Until then nothing can be brought in.
  void allocate();
  void forget_events();  // all streams are idle

 private:
  friend class PagedTensors;
  struct Buffer {
    Tensor memory;
    EventPtr free;  // may be null
  };
  Backend& host_;
  Backend& file_;
  Stream &in_, &out_;
  size_t bytes_ = 0;  // of the largest shard
  std::array<Buffer, 2> buffers_;
  size_t next_ = 0;
};

class PagedTensors {
 public:
  explicit PagedTensors(PageBuffers& buffers) : buffers_(buffers) {}
  PagedTensors(const PagedTensors&) = delete;
  PagedTensors& operator=(const PagedTensors&) = delete;

  struct Paged {
    Tensor home;  // in the file
    Tensor here;  // on the host: without bytes while at home
  };
  enum class Kind : uint8_t {
    kState,  // the host changes it
    kGiven,  // somebody else writes it, the host reads it
  };
  // Of zeros. Before PageBuffers::allocate.
  Paged add(Shape shape, DType dtype, MemoryCategory category, Kind kind = Kind::kState);

  enum class What : uint8_t { kGiven, kAll };
  void bring_in(What what);
  void give_back();
  // Since when the file has what the host changed last; null: it has not changed anything.
  const EventPtr& written() const { return written_; }
  void forget_events() { written_ = nullptr; }

 private:
  struct Entry {
    Paged paged;
    Kind kind;
    size_t offset;  // in a buffer
  };
  bool is_in(const Entry& entry) const { return what_ == What::kAll || entry.kind == Kind::kGiven; }

  PageBuffers& buffers_;
  std::vector<Entry> entries_;
  size_t bytes_ = 0;
  PageBuffers::Buffer* buffer_ = nullptr;  // while in memory
  What what_ = What::kAll;
  EventPtr written_;
};

}  // namespace fsdp::comm
