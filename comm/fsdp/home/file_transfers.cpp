// Contract: comm/fsdp/home/file_transfers.h.
#include "comm/fsdp/home/file_transfers.h"

#include <algorithm>

namespace fsdp::comm {
namespace {

std::byte* at(const Tensor& tensor, size_t offset) {
  return static_cast<std::byte*>(tensor.data()) + offset;
}

}  // namespace

FileTransfers::FileTransfers(Backend& host, const TransferStreams& streams)
    : device_(streams.to_host.backend()),
      host_(host),
      file_(streams.to_file.backend()),
      streams_(streams),
      in_{.category = MemoryCategory::kParameterShard},
      out_{.category = MemoryCategory::kGradient} {}

void FileTransfers::allocate() {
  allocate(in_);
  allocate(out_);
}

void FileTransfers::allocate(Direction& direction) {
  if (direction.bytes == 0) return;
  const size_t bytes = std::min(direction.bytes, kPieceBytes);
  for (Buffer& buffer : direction.buffers) {
    buffer.memory = page_memory(host_, bytes, direction.category);
  }
}

EventPtr FileTransfers::load(const Tensor& home, const Tensor& to, const EventPtr& written,
                             const EventPtr& free) {
  Stream &reads = streams_.from_file, &copies = streams_.from_host;
  file_.wait(reads, written);
  device_.wait(copies, free);
  EventPtr there = free;
  for (size_t done = 0; done < to.bytes(); done += kPieceBytes) {
    Buffer& buffer = in_.take();
    file_.wait(reads, buffer.free);
    file_.copy(reads, buffer.memory.data(), at(home, done),
               std::min(kPieceBytes, paged_bytes(home) - done));
    device_.wait(copies, file_.record(reads));
    device_.copy(copies, at(to, done), buffer.memory.data(),
                 std::min(kPieceBytes, to.bytes() - done));
    buffer.free = there = device_.record(copies);
  }
  return there;
}

FileTransfers::Stored FileTransfers::store(const Tensor& from, const Tensor& home,
                                           const EventPtr& there) {
  Stream &copies = streams_.to_host, &writes = streams_.to_file;
  Stored stored;
  device_.wait(copies, there);
  for (size_t done = 0; done < from.bytes(); done += kPieceBytes) {
    Buffer& buffer = out_.take();
    device_.wait(copies, buffer.free);
    device_.copy(copies, buffer.memory.data(), at(from, done),
                 std::min(kPieceBytes, from.bytes() - done));
    stored.sent = device_.record(copies);
    file_.wait(writes, stored.sent);
    file_.copy(writes, at(home, done), buffer.memory.data(),
               std::min(kPieceBytes, paged_bytes(home) - done));
    buffer.free = stored.written = file_.record(writes);
  }
  // Whoever reads the file by its own stream reads what was written.
  file_.wait(file_.compute_stream(), stored.written);
  return stored;
}

void FileTransfers::forget_events() {
  for (Direction* direction : {&in_, &out_}) {
    for (Buffer& buffer : direction->buffers) buffer.free = nullptr;
  }
}

}  // namespace fsdp::comm
