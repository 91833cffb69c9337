// A file as the memory of a backend: what lies in it is copied to and from memory, in the order of
// streams, events and errors that are the CPU's. It computes nothing; its addresses lead nowhere.
// Fresh memory is zeros. Memory is given back only with the backend.
// Not here: how bytes get to the disk (core/io/state_file.h), when (comm/fsdp).
#pragma once

#include "core/io/state_file.h"
#include "kernels/cpu/cpu_backend.h"

namespace fsdp::cpu {

class FileBackend : public CpuBackend {
 public:
  // A file in `folder`, of `owner`: see StateFile. Of `options` what is for tests counts.
  FileBackend(const std::filesystem::path& folder, std::string owner, CpuOptions options = {});
  ~FileBackend() override;  // waits for what is on its way

  std::string_view name() const override { return "file"; }
  bool computes() const override { return false; }
  bool host_reaches_memory() const override { return false; }
  const StateFile& file() const { return file_; }

  void* allocate(Stream& stream, size_t bytes, MemoryCategory category) override;
  void release(Stream& stream, void* data, size_t bytes, MemoryCategory category) noexcept override;
  // One of the two is in the file, the other in memory that the host reaches.
  void copy(Stream& stream, void* destination, const void* source, size_t bytes) override;
  void fill_zero(Stream& stream, void* data, size_t bytes) override;
  // Waits for the stream: `source` is not captured.
  void copy_from_host(Stream& stream, void* destination, const void* source, size_t bytes) override;

  void enqueue(Stream& stream, std::string_view name, int64_t bytes,
               std::function<void(Worker&)> task) override;

 private:
  StateFile file_;
};

}  // namespace fsdp::cpu
