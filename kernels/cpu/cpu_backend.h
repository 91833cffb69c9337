// The CPU as a real backend: streams are worker threads with in-order queues, events order them,
// the host runs ahead. Kernels live one family per file (matmul.cpp, norm.cpp, attention.cpp, ...),
// each defining its methods of CpuBackend: read pointers and extents at the call, then enqueue().
// Read next: kernels/cpu/stream.h (queue, events, delay injection), kernels/cpu/parallel.h.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/backend.h"
#include "core/tensor.h"
#include "core/trace.h"
#include "kernels/cpu/parallel.h"

namespace fsdp::cpu {

class MatmulCache;  // oneDNN primitives of one worker
class StreamAllocator;
class ProductScratch;
struct ScratchNeed;

struct CpuOptions {
  int threads = 1;           // of the compute stream's team; other streams have one
  bool synchronous = false;  // run everything inline at the call: for debugging
  // oneDNN computes matrix products in tiles of a fixed size, each on one thread, so that their
  // bits are the same with any number of threads: left to itself it may cut long sums into a part
  // for each thread. All else is the same anyway.
  bool fixed_tiles = false;
  std::string compute_name = "compute";  // of the compute stream, in traces
  // Makes blocks of memory that are freed with their last owner, pinned for a GPU. Null: memory
  // comes from the heaps of the streams.
  std::function<std::shared_ptr<std::byte>(size_t bytes)> memory;
  // Test hook: microseconds to sleep before each task of a stream, by (stream name, task name);
  // must be thread-safe. Null: none.
  std::function<int(const std::string&, std::string_view)> delay;
  // Drops the stream edges (waits) for which this returns true, by (waiting stream, recorded
  // stream): proves that tests notice a missing edge. Null: none.
  std::function<bool(const std::string&, const std::string&)> ignore_wait;
};

// What a task gets to work with: belongs to the stream's worker thread.
struct Worker {
  ThreadTeam& team;
  MatmulCache& matmul_cache;
};

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(CpuOptions options = {});
  ~CpuBackend() override;

  std::string_view name() const override { return "cpu"; }
  const CpuOptions& options() const { return options_; }

  void* allocate(Stream& stream, size_t bytes, MemoryCategory category) override;
  void release(Stream& stream, void* data, size_t bytes, MemoryCategory category) noexcept override;
  void copy(Stream& stream, void* destination, const void* source, size_t bytes) override;
  void fill_zero(Stream& stream, void* data, size_t bytes) override;
  void copy_from_host(Stream& stream, void* destination, const void* source, size_t bytes) override;
  void copy_to_host(Stream& stream, void* destination, const void* source, size_t bytes) override;
  EventPtr read_later(Stream& stream, void* destination, const void* source, size_t bytes,
                      std::function<void()> arrived) override;
  MemoryLedger& ledger() override { return ledger_; }
  bool host_reaches_memory() const override { return true; }
  std::shared_ptr<std::byte> staging_memory(size_t bytes) override;

  Stream& compute_stream() override { return *compute_stream_; }
  std::unique_ptr<Stream> create_stream(std::string name) override;
  EventPtr record(Stream& stream) override;
  void wait(Stream& stream, const EventPtr& event) override;
  void synchronize(Stream& stream) override;
  void host_task(Stream& stream, std::string_view name, int64_t bytes,
                 std::function<void()> task) override;
  void set_scope(std::string scope) override;
  std::string scope() const override { return scope_ ? *scope_ : std::string(); }
  void set_trace(Trace* trace) override {
    trace_ = trace;
    // The curves are those of the device that computes.
    if (options_.compute_name == "compute") ledger_.set_trace(trace);
  }

  void run(Stream& stream, Kernel kernel) override;
  // A specialization for each kernel of core/kernel_args.h, in the file of its family.
  template <typename Args>
  void compute(Stream& stream, const Args& args);

  // Puts a task at the end of the stream's queue. `bytes`: payload for the trace, 0 if none.
  virtual void enqueue(Stream& stream, std::string_view name, int64_t bytes,
                       std::function<void(Worker&)> task);
  int planned_threads(const Stream& stream) const;  // of its team
  // What the task that is enqueued next wants of its threads' scratch memory.
  void plan_scratch(Stream& stream, const ScratchNeed& need);

 private:
  void* allocate_block(size_t bytes, MemoryCategory category);

  CpuOptions options_;
  MemoryLedger ledger_;
  std::shared_ptr<const std::string> scope_;
  Trace* trace_ = nullptr;
  std::map<void*, std::shared_ptr<std::byte>> blocks_;  // with CpuOptions::memory
  std::unique_ptr<StreamAllocator> allocator_;
  std::unique_ptr<ProductScratch> product_scratch_;  // the host's
  std::unique_ptr<Stream> compute_stream_;
};

}  // namespace fsdp::cpu
