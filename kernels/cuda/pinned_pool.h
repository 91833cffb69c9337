// Pinned host memory in blocks that are used again: the staging of copies between host and GPU,
// which the driver moves without stopping the host. Not counted in the device's ledger. Large
// blocks, such as shards that are offloaded, are exact, and given back to the system.
//
// [Note: where pinned memory is freed] cudaFreeHost may wait for all streams. A block is let go by
// a task of a mirror, whose next task may open the gate that a stream waits for: such a task must
// not wait for streams. So it leaves a large block to whoever takes the next one, on the host's
// thread.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace fsdp::cuda {

class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  ~PinnedPool();
  // At least `bytes`; goes back when the last owner lets go. On the thread of the host alone.
  std::shared_ptr<std::byte> take(size_t bytes);

 private:
  std::shared_ptr<std::byte> take_large(size_t bytes);
  void free_let_go();
  std::byte* take_free(size_t size);  // null: there is none
  std::byte* take_of_new_slab(size_t size);

  std::mutex mutex_;
  std::map<size_t, std::vector<std::byte*>> free_;  // by size, a power of two
  std::vector<std::byte*> slabs_;   // what the driver gave: as much as was in use at once
  std::vector<std::byte*> let_go_;  // large blocks, to be freed
};

}  // namespace fsdp::cuda
