// The contract between the project and a kind of device, in three chapters: memory, order, math.
// One Backend object per rank; a Storage remembers the Backend that made it. Everything that takes
// a Stream is asynchronous: the host runs ahead, the stream runs in order, events order streams.
// Pointers and shapes are taken at the call; a tensor may be dropped by the host right after it.
// Read next: core/kernel_args.h (what each kernel reads and writes), kernels/cpu/cpu_backend.h.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/dtype.h"
#include "core/kernel.h"
#include "core/memory_ledger.h"

namespace fsdp {

class Backend;
class Trace;

// An in-order queue of work. Made by Backend::create_stream.
class Stream {
 public:
  virtual ~Stream() = default;
  const std::string& name() const { return name_; }
  Backend& backend() const { return *backend_; }
  // The device's own stream, for libraries that put work on it (a cudaStream_t); null: there is
  // none.
  virtual void* native_handle() const { return nullptr; }

 protected:
  Stream(Backend& backend, std::string name) : backend_(&backend), name_(std::move(name)) {}

 private:
  Backend* backend_;
  std::string name_;
};

// A point in a stream. Events of one backend can be waited on by streams of another.
class Event {
 public:
  virtual ~Event() = default;
  // Blocks the host; rethrows the first Error of the stream it was recorded on.
  virtual void wait() = 0;
  virtual bool ready() const = 0;
};
using EventPtr = std::shared_ptr<Event>;

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;  // "cpu", "cuda", "meta"
  // False: memory has addresses but no bytes (kernels/meta), so that nobody need make values for
  // it; what is read from it is zeros.
  virtual bool holds_values() const { return true; }
  // False: memory that is only copied to and from, a file; fresh memory of it is zeros.
  virtual bool computes() const { return true; }

  // ---- Memory. Stream-ordered: what is released is reused only by later work of that stream. ----
  virtual void* allocate(Stream& stream, size_t bytes, MemoryCategory category) = 0;
  // For destructors. What goes wrong is told to whoever waits for the stream next.
  virtual void release(Stream& stream, void* data, size_t bytes,
                       MemoryCategory category) noexcept = 0;
  virtual void copy(Stream& stream, void* destination, const void* source, size_t bytes) = 0;
  virtual void fill_zero(Stream& stream, void* data, size_t bytes) = 0;
  // `source` is read before the call returns.
  virtual void copy_from_host(Stream& stream, void* destination, const void* source,
                              size_t bytes) = 0;
  // Waits for the stream.
  virtual void copy_to_host(Stream& stream, void* destination, const void* source,
                            size_t bytes) = 0;
  // Does not wait: `destination` holds the values once the event is ready, and must live until
  // then. `arrived` is called on a thread of the backend when the values have arrived; later
  // work of the stream need not wait for it.
  virtual EventPtr read_later(Stream& stream, void* destination, const void* source, size_t bytes,
                              std::function<void()> arrived) = 0;
  virtual MemoryLedger& ledger() = 0;
  // Memory that was released and is kept for later allocations goes back to the machine, where a
  // library that allocates for itself may want it. The host waits for this backend's streams.
  virtual void give_back_unused() {}
  // Whether host tasks may read and write this memory themselves. If not, transports copy through
  // staging memory on the host, of a kind that this backend can copy without stopping the host.
  // Staging memory is freed with its last owner, and the ledger does not count it.
  virtual bool host_reaches_memory() const = 0;
  virtual std::shared_ptr<std::byte> staging_memory(size_t bytes) = 0;

  // ---- Order. ----
  virtual Stream& compute_stream() = 0;  // where core/ops and optim put their kernels
  virtual std::unique_ptr<Stream> create_stream(std::string name) = 0;
  virtual EventPtr record(Stream& stream) = 0;
  virtual void wait(Stream& stream, const EventPtr& event) = 0;  // null event: no-op
  virtual void synchronize(Stream& stream) = 0;  // host waits; rethrows the stream's first Error
  // Host code in stream order, for transports that work on host memory. An Error it throws poisons
  // the stream.
  virtual void host_task(Stream& stream, std::string_view name, int64_t bytes,
                         std::function<void()> task) = 0;
  // Names what the host is enqueueing (unit or module) in traces and errors; "" clears.
  virtual void set_scope(std::string scope) = 0;
  virtual std::string scope() const = 0;
  virtual void set_trace(Trace* trace) = 0;  // null: off. Not owned

  // ---- Math: run(stream, AddArgs{a, b, out}). What there is: core/kernel_args.h. ----
  virtual void run(Stream& stream, Kernel kernel) = 0;
};

}  // namespace fsdp
