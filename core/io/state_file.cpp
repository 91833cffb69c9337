// Contract: core/io/state_file.h.
#include "core/io/state_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/error.h"
#include "core/text/byte_size.h"

namespace fsdp {
namespace {

constexpr size_t kPiece = size_t{1} << 20;   // bytes of one request
constexpr size_t kBuffer = size_t{4} << 20;  // of the detour
constexpr const char* kName = ".fsdp-state-";

std::string text_of(int error) { return std::generic_category().message(error); }

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<std::byte, FreeMemory>;

AlignedMemory aligned_memory(size_t bytes) {
  AlignedMemory memory(static_cast<std::byte*>(std::aligned_alloc(kFileBlock, bytes)));
  FSDP_CHECK(memory, "[state file] out of memory for {} bytes", bytes);
  std::memset(memory.get(), 0, bytes);
  return memory;
}

bool is_aligned(uint64_t value) { return value % kFileBlock == 0; }

// Names that were not removed between open and unlink. Whoever has such a file open keeps it.
void remove_left_names(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const auto& item : std::filesystem::directory_iterator(folder, ignored)) {
    if (item.path().filename().string().starts_with(kName)) {
      std::filesystem::remove(item.path(), ignored);
    }
  }
}

}  // namespace

StateFile::StateFile(const std::filesystem::path& folder, std::string owner)
    : folder_(folder), owner_(std::move(owner)) {
  std::error_code error;
  FSDP_CHECK(std::filesystem::is_directory(folder_, error), "{}: expected a folder, got {}",
             folder_.string(), error ? error.message() : "something else");
  remove_left_names(folder_);
  open_without_name();
  direct_ = try_direct();
  std::string problem;
  give_ring(IoRing::make(problem));
  has_ring_ = !rings_.empty();
  if (problem.empty()) return;
  notice_ += fmt::format("{}{}: reads and writes come one after the other",
                         notice_.empty() ? "" : "; ", problem);
}

StateFile::~StateFile() { ::close(descriptor_); }

void StateFile::open_without_name() {
  descriptor_ = ::open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  for (int attempt = 0; descriptor_ < 0; ++attempt) {  // some file systems cannot
    const auto path = folder_ / fmt::format("{}{}-{}", kName, ::getpid(), attempt);
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FSDP_CHECK(descriptor_ >= 0 || errno == EEXIST, "{}: cannot make a file: {}", folder_.string(),
               text_of(errno));
    if (descriptor_ >= 0) ::unlink(path.c_str());
  }
}

// The file system says how large its blocks are; whether it reads and writes them past the cache
// shows when it does.
bool StateFile::try_direct() {
  struct statvfs about {};
  const bool known = ::fstatvfs(descriptor_, &about) == 0;
  std::string why;
  if (known && about.f_frsize > kFileBlock) {
    why = fmt::format("its blocks have {} bytes", about.f_frsize);
  } else {
    const int flags = ::fcntl(descriptor_, F_GETFL);
    const AlignedMemory block = aligned_memory(kFileBlock);
    bool tried = ::fcntl(descriptor_, F_SETFL, flags | O_DIRECT) == 0;
    if (tried && ::pwrite(descriptor_, block.get(), kFileBlock, 0) < 0) {
      tried = errno != EINVAL;  // a full disk says so when room is reserved
    }
    if (tried) return true;
    why = text_of(errno);
    ::fcntl(descriptor_, F_SETFL, flags);
  }
  notice_ = fmt::format("{}: no O_DIRECT ({}): reads and writes pass through the system's cache",
                        folder_.string(), why);
  return false;
}

uint64_t StateFile::reserve(size_t bytes) {
  const uint64_t offset = size_;
  const auto at = static_cast<off_t>(offset);
  int error = ::fallocate(descriptor_, 0, at, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  if (error == EOPNOTSUPP || error == ENOSYS) {  // then the disk is full when it is written
    error = ::ftruncate(descriptor_, at + static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  }
  if (error != 0) {
    struct statvfs about {};
    ::fstatvfs(descriptor_, &about);
    fail("{}: the state of {}: expected room for {} more beside its {}, {} are free: {}",
         folder_.string(), owner_, byte_size_text(bytes), byte_size_text(offset),
         byte_size_text(about.f_bavail * about.f_frsize), text_of(error));
  }
  size_ += bytes;
  return offset;
}

void StateFile::read(uint64_t offset, void* out, size_t bytes) {
  transfer(false, offset, static_cast<std::byte*>(out), bytes);
}

void StateFile::write(uint64_t offset, const void* data, size_t bytes) {
  transfer(true, offset, static_cast<std::byte*>(const_cast<void*>(data)), bytes);
}

void StateFile::write_zeros(uint64_t offset, size_t bytes) {
  const AlignedMemory zeros = aligned_memory(std::min(kBuffer, rounded_to_blocks(bytes)));
  for (size_t done = 0; done < bytes; done += kBuffer) {
    write(offset + done, zeros.get(), std::min(kBuffer, bytes - done));
  }
}

void StateFile::transfer(bool writes, uint64_t offset, std::byte* memory, size_t bytes) {
  const bool whole =
      is_aligned(offset) && is_aligned(bytes) && is_aligned(reinterpret_cast<uintptr_t>(memory));
  if (direct_ && !whole) return transfer_through_buffer(writes, offset, memory, bytes);
  std::vector<FileRequest> requests;
  for (size_t done = 0; done < bytes; done += kPiece) {
    requests.push_back({writes, offset + done, memory + done, std::min(kPiece, bytes - done)});
  }
  if (std::unique_ptr<IoRing> ring = take_ring()) {
    ring->run(descriptor_, requests);
    give_ring(std::move(ring));
  }
  for (const FileRequest& request : requests) finish(request);
}

// What the ring has left of it, or all without a ring.
void StateFile::finish(const FileRequest& request) {
  const auto& [writes, offset, memory, bytes, result] = request;
  const bool again = result == -EINTR || result == -EAGAIN;
  if (result < 0 && !again) fail_at(writes, offset, bytes, text_of(static_cast<int>(-result)));
  size_t done = again ? 0 : static_cast<size_t>(result);
  while (done < bytes) {
    if (direct_) done = done / kFileBlock * kFileBlock;  // it does not go on within a block
    const auto at = static_cast<off_t>(offset + done);
    const ssize_t n = writes ? ::pwrite(descriptor_, memory + done, bytes - done, at)
                             : ::pread(descriptor_, memory + done, bytes - done, at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_at(writes, offset + done, bytes - done, text_of(errno));
    const auto now = static_cast<size_t>(n);
    const bool stuck = now == 0 || (direct_ && now < kFileBlock && now < bytes - done);
    if (stuck) fail_at(writes, offset + done, bytes - done, "the file ends before them");
    done += now;
  }
}

// Blocks of which only a part is meant are read, changed and written again.
void StateFile::transfer_through_buffer(bool writes, uint64_t offset, std::byte* memory,
                                        size_t bytes) {
  const size_t most = std::min(kBuffer, rounded_to_blocks(offset % kFileBlock + bytes));
  const AlignedMemory buffer = aligned_memory(most);
  while (bytes > 0) {
    const uint64_t first = offset / kFileBlock * kFileBlock;
    const size_t skipped = offset - first;
    const size_t part = std::min(bytes, most - skipped);
    const size_t blocks = rounded_to_blocks(skipped + part);
    if (writes) {
      if (skipped != 0) transfer(false, first, buffer.get(), kFileBlock);
      const size_t last = blocks - kFileBlock;
      const bool read = last == 0 && skipped != 0;  // with the first one
      if (!is_aligned(skipped + part) && !read) {
        transfer(false, first + last, buffer.get() + last, kFileBlock);
      }
      std::memcpy(buffer.get() + skipped, memory, part);
      transfer(true, first, buffer.get(), blocks);
    } else {
      transfer(false, first, buffer.get(), blocks);
      std::memcpy(memory, buffer.get() + skipped, part);
    }
    offset += part;
    memory += part;
    bytes -= part;
  }
}

void StateFile::fail_at(bool writes, uint64_t offset, size_t bytes, const std::string& why) {
  fail("{}: the state of {} ({} without a name): expected to {} {} bytes at byte {}: {}",
       folder_.string(), owner_, byte_size_text(size_), writes ? "write" : "read", bytes, offset,
       why);
}

std::unique_ptr<IoRing> StateFile::take_ring() {
  if (!has_ring_) return nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!rings_.empty()) {
      std::unique_ptr<IoRing> ring = std::move(rings_.back());
      rings_.pop_back();
      return ring;
    }
  }
  std::string problem;  // of one more ring: this transfer does without
  return IoRing::make(problem);
}

void StateFile::give_ring(std::unique_ptr<IoRing> ring) {
  const std::lock_guard lock(mutex_);
  if (ring) rings_.push_back(std::move(ring));
}

}  // namespace fsdp
