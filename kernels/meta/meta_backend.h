// A backend without bytes and without threads: the training step that runs on it takes the
// allocations, the order and the collectives of a real one, and computes nothing. Addresses are
// unique for the backend's lifetime, because code compares pointers; nobody may follow them. What
// the host reads is zeros, at once. Events are ready when they are recorded.
// Whoever wants to see the calls sets a recorder.
//
// [Note: virtual time] Every stream has a clock, and so has the host. A call begins when its stream
// has done what it was given before and the host has issued the call; it ends call_times.h later.
// An event is the moment to which its stream had come; a stream or a host that waits for it
// goes on no earlier. Where host and device are one machine, kernels of their compute streams run
// one after the other, in the order of the calls. Without CallTimes nothing takes time.
//
// [Note: one link] Collectives of all streams share one link: each has all of it, after those that
// were put before it. While one runs, kernels of the device's compute stream go at
// (1 - interference) of their speed: a kernel ends when the integral of its speed is the time that
// it takes alone. Whoever overlaps a collective with kernels puts the collective first, so all
// that slows a kernel is known when the kernel is put.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/backend.h"
#include "kernels/meta/block_log.h"
#include "kernels/meta/call_times.h"
#include "kernels/meta/heap_forecast.h"

namespace fsdp::meta {

// A call that a real backend would have put on a stream.
struct MetaCall {
  const Stream& stream;
  std::string_view name;  // of the kernel, "copy", "allocate", or of a host task: "all_gather"
  int64_t bytes = 0;      // of all but kernels
  const std::string& scope;
  double begin_s = 0, end_s = 0;       // on the stream
  const KernelCall* kernel = nullptr;  // null: of no kernel, or without CallTimes
};
using MetaRecorder = std::function<void(const MetaCall&)>;

struct MetaOptions {
  bool predicts_workspace = true;  // false: as for a GPU, where libraries say what they want
  bool bounds_workspace = false;   // of a GPU: what its kernels take at the most is counted
  // Of a GPU that adds up attention's dq in any order: bytes that this may take; 0: none does.
  size_t any_order_limit = 0;
  int cpu_threads = 1;              // of the CPU's compute stream; without a meaning for a GPU
  bool fixed_tiles = false;         // of the CPU: see cpu::CpuOptions
  bool keeps_blocks = false;        // for block_log()
  bool host_reaches_memory = true;  // false: as of a GPU
};

// Clocks of the streams go on after the host's. Of all backends of a run.
struct HostClock {
  double now_s = 0;
  double last_end_s = 0;  // of all streams
  double computed_s = 0;  // the end of the last kernel, where one machine computes for all
  // Of collectives, one after the other; without those that ended before the last kernel.
  struct Span {
    double begin_s, end_s;
  };
  std::deque<Span> collectives;
};

class MetaBackend final : public Backend {
 public:
  explicit MetaBackend(const MetaOptions& options = {});
  ~MetaBackend() override;
  // Another one, with the same clock: the memory of the host, and the CPU that computes there.
  std::unique_ptr<MetaBackend> make_host() const;
  // And a file, which computes nothing.
  std::unique_ptr<MetaBackend> make_file() const;

  // Called by every call, in the order of the host. Null: none.
  void set_recorder(MetaRecorder recorder) { recorder_ = std::move(recorder); }

  // What calls take from now on. Null: nothing, as at first.
  void set_times(std::shared_ptr<CallTimes> times) { times_ = std::move(times); }
  // Work of `seconds` that is no kernel: a collective. [Note: one link]
  void occupy(Stream& stream, std::string_view name, int64_t bytes, double seconds);
  double host_seconds() const { return host_->now_s; }
  // The host waits for all streams, of all backends of the run; when they are done.
  double finish_all();

  // Up to where a CPU's heaps would have been used; 0: as for a GPU.
  size_t heap_end() const { return forecast_ ? forecast_->high_water() : 0; }
  const BlockLog* block_log() const { return log_ ? &*log_ : nullptr; }  // null: not kept

  std::string_view name() const override { return "meta"; }
  bool holds_values() const override { return false; }
  bool computes() const override { return place_ != Place::kFile; }

  void* allocate(Stream& stream, size_t bytes, MemoryCategory category) override;
  void release(Stream& stream, void* data, size_t bytes, MemoryCategory category) noexcept override;
  void copy(Stream& stream, void* destination, const void* source, size_t bytes) override;
  void fill_zero(Stream& stream, void* data, size_t bytes) override;
  void copy_from_host(Stream& stream, void* destination, const void* source, size_t bytes) override;
  void copy_to_host(Stream& stream, void* destination, const void* source, size_t bytes) override;
  EventPtr read_later(Stream& stream, void* destination, const void* source, size_t bytes,
                      std::function<void()> arrived) override;
  MemoryLedger& ledger() override { return ledger_; }
  bool host_reaches_memory() const override { return host_reaches_memory_ && computes(); }
  std::shared_ptr<std::byte> staging_memory(size_t bytes) override;

  Stream& compute_stream() override { return *compute_stream_; }
  std::unique_ptr<Stream> create_stream(std::string name) override;
  EventPtr record(Stream& stream) override;
  void wait(Stream& stream, const EventPtr& event) override;
  void synchronize(Stream& stream) override;
  // Runs it, now.
  void host_task(Stream& stream, std::string_view name, int64_t bytes,
                 std::function<void()> task) override;
  void set_scope(std::string scope) override { scope_ = std::move(scope); }
  std::string scope() const override { return scope_; }
  void set_trace(Trace* trace) override { ledger_.set_trace(trace); }  // of memory alone

  // Computes nothing: the call is noted, with what it takes.
  void run(Stream& stream, Kernel kernel) override;

 private:
  enum class Place : uint8_t { kDevice, kHost, kFile };

  std::unique_ptr<MetaBackend> make_other(Place place, const MetaOptions& options,
                                          std::string stream) const;
  void put(Stream& stream, std::string_view name, int64_t bytes, double seconds,
           const KernelCall* kernel = nullptr);
  void put_at(double begin_s, double end_s, Stream& stream, std::string_view name, int64_t bytes,
              const KernelCall* kernel);
  // When the host has issued the stream's next call, and the stream can begin it.
  double issue(Stream& stream, std::string_view name);
  void put_file_access(Stream& stream, bool writes, size_t bytes);
  // What a kernel takes for itself: a CPU's, or a GPU's at the most.
  template <typename Args>
  void take_workspace(const Stream& stream, const Args& args);
  void bound(size_t bytes);  // of a GPU
  // What a CPU's kernel would take for itself.
  void plan(const Stream& stream, const cpu::ScratchNeed& need);
  // `describe` makes the KernelCall, for which there is no use without CallTimes.
  template <typename Describe>
  void put_kernel(Stream& stream, std::string_view name, int64_t bytes, const Describe& describe) {
    if (!times_) return put(stream, name, bytes, 0);
    const KernelCall call = describe();
    put(stream, name, bytes,
        place_ == Place::kHost ? times_->host_kernel_seconds(call) : times_->kernel_seconds(call),
        &call);
  }

  MemoryLedger ledger_;
  Place place_ = Place::kDevice;
  int cpu_threads_;
  bool host_reaches_memory_;
  uintptr_t next_;  // address
  std::string scope_;
  MetaRecorder recorder_;
  std::shared_ptr<CallTimes> times_;
  std::shared_ptr<HostClock> host_ = std::make_shared<HostClock>();  // events outlive the backend
  std::unique_ptr<Stream> compute_stream_;
  std::optional<BlockLog> log_;
  bool bounds_workspace_ = false;
  size_t any_order_limit_ = 0;
  std::optional<HeapForecast> forecast_;  // of a CPU; none: as for a GPU
};

}  // namespace fsdp::meta
