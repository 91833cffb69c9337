// A file without a name that holds a rank's state while the process runs: nothing of it is left
// when the process ends, however it ends. Reads and writes pass by the system's cache (O_DIRECT)
// and are kept in flight together (core/io/io_ring.h) where the system lets them. Not here: which
// bytes are which tensor (kernels/cpu/file_backend.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/io/io_ring.h"

namespace fsdp {

// Places in the file, sizes and addresses in memory that are multiples of it are read and written
// as they are. Others take a detour through a buffer.
constexpr size_t kFileBlock = 4096;

inline size_t rounded_to_blocks(size_t bytes) {
  return (bytes + kFileBlock - 1) / kFileBlock * kFileBlock;
}

class StateFile {
 public:
  // In `folder`, which must exist. `owner`: of whom the state is, for errors: "rank 0". What a
  // process that was killed has left of such a file's name is removed.
  StateFile(const std::filesystem::path& folder, std::string owner);
  ~StateFile();
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;

  // Room for so many bytes, a multiple of kFileBlock, which are zeros; returns its offset. Error
  // when the disk has no room.
  uint64_t reserve(size_t bytes);
  // All bytes, or Error, which names the file, the place, and what the system says. From several
  // threads at a time; ranges that are not whole blocks, from one.
  void read(uint64_t offset, void* out, size_t bytes);
  void write(uint64_t offset, const void* data, size_t bytes);
  void write_zeros(uint64_t offset, size_t bytes);

  uint64_t size() const { return size_; }  // bytes reserved
  // What is done in a slower way than the file system could, and why; "": nothing.
  const std::string& notice() const { return notice_; }
  bool is_direct() const { return direct_; }
  bool has_ring() const { return has_ring_; }

 private:
  void open_without_name();
  bool try_direct();
  void transfer(bool writes, uint64_t offset, std::byte* memory, size_t bytes);
  void finish(const FileRequest& request);
  void transfer_through_buffer(bool writes, uint64_t offset, std::byte* memory, size_t bytes);
  [[noreturn]] void fail_at(bool writes, uint64_t offset, size_t bytes, const std::string& why);
  std::unique_ptr<IoRing> take_ring();
  void give_ring(std::unique_ptr<IoRing> ring);

  std::filesystem::path folder_;
  std::string owner_;
  int descriptor_ = -1;
  bool direct_ = false, has_ring_ = false;
  uint64_t size_ = 0;
  std::string notice_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<IoRing>> rings_;  // that no thread uses now
};

}  // namespace fsdp
