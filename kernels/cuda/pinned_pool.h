// Pinned host memory in blocks that are used again: the staging of copies between host and GPU,
// which the driver moves without stopping the host. Not counted in the device's ledger. Large
// blocks, such as shards that are offloaded, are exact, and given back to the system.
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
  // At least `bytes`; goes back when the last owner lets go.
  std::shared_ptr<std::byte> take(size_t bytes);

 private:
  static std::shared_ptr<std::byte> take_large(size_t bytes);
  std::byte* take_free(size_t size);  // null: there is none
  std::byte* take_of_new_slab(size_t size);

  std::mutex mutex_;
  std::map<size_t, std::vector<std::byte*>> free_;  // by size, a power of two
  std::vector<std::byte*> slabs_;                   // what the driver gave
};

}  // namespace fsdp::cuda
