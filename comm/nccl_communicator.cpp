// A communicator over NCCL: collectives on the GPU's streams, control messages through another
// communicator of the same ranks; splits, registered memory, and the making of the first one.
// Who makes that: comm/nccl_transport.h.
//
// [Note: nonblocking NCCL] Communicators are nonblocking: a call may return before NCCL is done
// with it, and settle() asks until it is. Only so can a rank give up on peers that never come, and
// can the watchdog abort what hangs.
#include <cstdlib>
#include <exception>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "comm/exchange.h"
#include "comm/host_collectives.h"
#include "comm/nccl_library.h"
#include "comm/nccl_transport.h"
#include "comm/nccl_watchdog.h"

namespace fsdp::comm {
namespace {

// What all NCCL communicators of a rank share.
struct NcclJob {
  explicit NcclJob(const NcclOptions& o)
      : options(o), library(nccl::library()), watchdog(library, o) {}

  // Waits until NCCL is done with a call on `comm` that returned `result`; Error when it failed.
  void settle(nccl::Comm comm, nccl::Result result, std::string_view what) const;
  // The communicator that begin(&comm) asks for. `parent`: that it is split from, or null.
  template <typename F>
  nccl::Comm make(nccl::Comm parent, std::string_view what, F begin) const;

  const NcclOptions options;
  const nccl::Library& library;
  NcclWatchdog watchdog;
  std::string notice;
};

// NCCL's communicator, which goes with its last owner.
class NcclGroup {
 public:
  NcclGroup(std::shared_ptr<NcclJob> job, nccl::Comm comm, const std::string& name);
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  nccl::Comm comm() const { return comm_; }
  NcclJob& job() const { return *job_; }
  EventPtr last;                         // the end of the last collective; null: none
  std::set<std::string_view> connected;  // kinds of collectives that there were

 private:
  std::shared_ptr<NcclJob> job_;
  nccl::Comm comm_;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<NcclJob> job, std::unique_ptr<Communicator> control,
                   nccl::Comm comm, const std::string& name);

  std::shared_ptr<CommBuffer> allocate(Backend& backend, size_t bytes,
                                       MemoryCategory category) override;
  std::unique_ptr<Communicator> split(const SplitRule& rule, const std::string& name) override;
  bool abort(const std::string& reason) override { return control_->abort(reason); }
  std::string aborted() const override { return control_->aborted(); }
  bool sums_in_rank_order() const override { return false; }
  std::string notice() const override { return job_->notice; }

 private:
  std::vector<std::string> do_exchange(const std::string& mine) override;
  void do_all_gather(Stream& stream, const Tensor& buffer) override;
  void do_reduce_scatter(Stream& stream, const Tensor& input, const Tensor& output,
                         ReduceOp op) override;
  void do_all_reduce(Stream& stream, const Tensor& buffer, ReduceOp op) override;
  void do_broadcast(Stream& stream, const Tensor& buffer, int root) override;
  // Puts NCCL's call on the stream, watched: call(native stream).
  template <typename F>
  void run(Stream& stream, std::string_view what, F call);

  std::shared_ptr<NcclJob> job_;
  std::unique_ptr<Communicator> control_;
  std::shared_ptr<NcclGroup> group_;
};

constexpr std::chrono::microseconds kSpins(100);  // settle() asks without a pause for so long,
constexpr std::chrono::microseconds kAsks(20);    // and then with this one: sleeping takes longer
constexpr std::chrono::seconds kUntilFinalized(10);  // for peers that end as well

nccl::Config config_of(const NcclOptions& options) {
  nccl::Config config;  // nonblocking
  if (options.max_ctas > 0) config.max_ctas = options.max_ctas;
  return config;
}

nccl::DataType type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return nccl::kFloat32;
    case DType::kBF16:
      return nccl::kBFloat16;
    case DType::kF16:
      return nccl::kFloat16;
    case DType::kF64:
      return nccl::kFloat64;
    case DType::kI32:
      return nccl::kInt32;
    case DType::kI64:
      return nccl::kInt64;
  }
  fail("[nccl] dtype {}: NCCL has none like it", static_cast<int>(dtype));
}

nccl::RedOp op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return nccl::kSum;
    case ReduceOp::kAverage:
      return nccl::kAvg;
    case ReduceOp::kMax:
      return nccl::kMax;
  }
  fail("[nccl] reduction {}: NCCL has none like it", static_cast<int>(op));
}

size_t count_of(const Tensor& tensor) { return static_cast<size_t>(tensor.numel()); }

// Memory of a group that peers reach directly.
class NcclBuffer final : public CommBuffer {
 public:
  NcclBuffer(std::shared_ptr<NcclGroup> group, void* data, size_t bytes, Backend& backend,
             MemoryCategory category)
      : group_(std::move(group)),
        data_(data),
        bytes_(bytes),
        backend_(backend),
        category_(category) {
    NcclJob& job = group_->job();
    constexpr std::string_view kCall = "ncclCommRegister";
    job.settle(
        group_->comm(),
        job.watchdog.call(
            kCall,
            [&] { return job.library.register_memory(group_->comm(), data, bytes, &handle_); }),
        kCall);
    backend_.ledger().add(category_, bytes_);
  }
  // Nothing of it may be in flight: not the collectives, not what computes with it.
  ~NcclBuffer() override {
    backend_.ledger().subtract(category_, bytes_);
    if (std::uncaught_exceptions() > 0) return;  // it may be in flight until peers come
    const nccl::Library& library = group_->job().library;
    try {
      if (group_->last) group_->last->wait();
      backend_.synchronize(backend_.compute_stream());
      group_->job().watchdog.call(
          "release", [&] { return library.deregister_memory(group_->comm(), handle_); });
    } catch (const Error&) {  // whoever waits next for the stream reports it
      return;                 // its communicator may be about to be aborted, and use it until then
    }
    library.memory_free(data_);
  }
  void* data() const override { return data_; }
  size_t bytes() const override { return bytes_; }

 private:
  std::shared_ptr<NcclGroup> group_;
  void* data_;
  size_t bytes_;
  Backend& backend_;
  MemoryCategory category_;
  void* handle_ = nullptr;
};

}  // namespace

// ---------------------------------------------------------------------------- Life

void NcclJob::settle(nccl::Comm comm, nccl::Result result, std::string_view what) const {
  const auto begin = std::chrono::steady_clock::now();
  while (result == nccl::kInProgress) {
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (waited >= options.timeout) {
      throw MachineError(fmt::format("[nccl] {}: not all ranks came within {} s", what,
                                     std::chrono::duration<double>(options.timeout).count()));
    }
    result = watchdog.call(what, [&] {
      nccl::Result state = nccl::kSuccess;
      const nccl::Result asked = library.async_error(comm, &state);
      return asked != nccl::kSuccess ? asked : state;
    });
    if (result != nccl::kInProgress) break;
    waited < kSpins ? std::this_thread::yield() : std::this_thread::sleep_for(kAsks);
  }
  if (result == nccl::kSuccess) return;
  const std::string told = watchdog.call(what, [&] { return told_by_nccl(library, result, comm); });
  const std::string message = fmt::format("[nccl] {}: {}", what, told);
  if (result == nccl::kInvalidArgument || result == nccl::kInvalidUsage) throw Error(message);
  throw MachineError(message);
}

// Not freed in an error: NCCL's thread may write to it when ranks come after all. A function of its
// own for LeakSanitizer, which is told its name (tests/support/leaks.txt).
[[gnu::noinline]] static nccl::Comm* place_for_comm() { return new nccl::Comm(nullptr); }

template <typename F>
nccl::Comm NcclJob::make(nccl::Comm parent, std::string_view what, F begin) const {
  nccl::Comm* const comm = place_for_comm();
  nccl::Result begun = watchdog.call(what, [&] { return begin(comm); });
  // A split says kSuccess at once, and leaves the child null until that is the parent's state.
  if (begun == nccl::kSuccess) begun = nccl::kInProgress;
  if (parent) settle(parent, begun, what);
  settle(*comm, begun, what);
  const nccl::Comm made = *comm;
  delete comm;
  return made;
}

NcclGroup::NcclGroup(std::shared_ptr<NcclJob> job, nccl::Comm comm, const std::string& name)
    : job_(std::move(job)), comm_(comm) {
  job_->watchdog.add(comm_, name);
}

// In an error peers may never come to the end of what was begun, and an abort waits for their
// aborts. So nothing is waited for here: threads leave their communicators to the watchdog, which
// tells the peers; of a process they stay until its end, which follows.
NcclGroup::~NcclGroup() {
  const bool in_error = std::uncaught_exceptions() > 0;
  if (in_error && job_->options.given_up) return;
  if (!job_->watchdog.remove(comm_) || in_error) return;
  const nccl::Library& library = job_->library;
  const auto deadline = std::chrono::steady_clock::now() + kUntilFinalized;
  nccl::Result state = library.finalize(comm_);
  while (state == nccl::kInProgress && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kAsks);
    if (library.async_error(comm_, &state) != nccl::kSuccess) break;
  }
  if (state == nccl::kSuccess) {
    library.destroy(comm_);
  } else {
    library.abort(comm_);
  }
}

NcclCommunicator::NcclCommunicator(std::shared_ptr<NcclJob> job,
                                   std::unique_ptr<Communicator> control, nccl::Comm comm,
                                   const std::string& name)
    : Communicator(control->rank(), name, control->ring().members(), control->rings()),
      job_(std::move(job)),
      control_(std::move(control)),
      group_(std::make_shared<NcclGroup>(job_, comm, name)) {}

std::unique_ptr<Communicator> NcclCommunicator::split(const SplitRule& rule,
                                                      const std::string& name) {
  job_->watchdog.check(name);
  auto control = control_->split(rule, name + " control");
  const SplitGroup part = group_of_split(rule);
  nccl::Config config = config_of(job_->options);
  nccl::Comm comm = job_->make(group_->comm(), "split " + name, [&](nccl::Comm* to) {
    return job_->library.split(group_->comm(), part.color, part.rank, to, &config);
  });
  return std::make_unique<NcclCommunicator>(job_, std::move(control), comm, name);
}

std::shared_ptr<CommBuffer> NcclCommunicator::allocate(Backend& backend, size_t bytes,
                                                       MemoryCategory category) {
  // The same on every rank, and without waiting for them: such memory may come and go in a step.
  if (bytes == 0 || size() == 1 || !job_->options.register_buffers) {
    return std::make_shared<BackendBuffer>(backend, bytes, category);
  }
  const nccl::Library& library = job_->library;
  void* data = nullptr;
  const auto try_to_allocate = [&] {
    return library.memory_allocate && library.memory_allocate(&data, bytes) == nccl::kSuccess;
  };
  bool registered = try_to_allocate();
  if (!registered && library.memory_allocate) {  // the backend may keep what is missing
    backend.give_back_unused();
    registered = try_to_allocate();
  }
  // All or none: NCCL takes a buffer as registered only when every rank's is.
  for (const int of_rank : exchange_values(*this, int{registered})) {
    if (of_rank != 0) continue;
    if (registered) library.memory_free(data);
    return std::make_shared<BackendBuffer>(backend, bytes, category);
  }
  return std::make_shared<NcclBuffer>(group_, data, bytes, backend, category);
}

std::vector<std::string> NcclCommunicator::do_exchange(const std::string& mine) {
  job_->watchdog.check(name());
  return control_->exchange(mine);
}

// ---------------------------------------------------------------------------- Collectives

template <typename F>
void NcclCommunicator::run(Stream& stream, std::string_view what, F call) {
  job_->watchdog.check(name());
  void* const native = stream.native_handle();
  FSDP_CHECK(native, "[{}] {}: stream {}: expected one of a GPU, got one of {}", what, name(),
             stream.name(), stream.backend().name());
  // The first of a kind connects the ranks for it: NCCL takes buffers for that.
  if (group_->connected.insert(what).second) stream.backend().give_back_unused();
  EventPtr begun = stream.backend().record(stream);
  try {
    job_->settle(group_->comm(), job_->watchdog.call(name(), [&] { return call(native); }),
                 fmt::format("{} {}", what, name()));
  } catch (const MachineError&) {
    stream.backend().record(stream);  // after a fault of the GPU this tells of it
    throw;
  }
  group_->last = stream.backend().record(stream);
  const IssuedCall issued = issued_call();
  job_->watchdog.watch({issued.ring, issued.sequence, std::move(begun), group_->last});
}

void NcclCommunicator::do_all_gather(Stream& stream, const Tensor& buffer) {
  const size_t slot = buffer.bytes() / static_cast<size_t>(size());
  const auto* own =
      static_cast<const std::byte*>(buffer.data()) + static_cast<size_t>(rank()) * slot;
  run(stream, "all_gather", [&](void* native) {
    return job_->library.all_gather(own, buffer.data(), slot / size_of(buffer.dtype()),
                                    type_of(buffer.dtype()), group_->comm(), native);
  });
}

void NcclCommunicator::do_reduce_scatter(Stream& stream, const Tensor& input, const Tensor& output,
                                         ReduceOp op) {
  run(stream, "reduce_scatter", [&](void* native) {
    return job_->library.reduce_scatter(input.data(), output.data(), count_of(output),
                                        type_of(input.dtype()), op_of(op), group_->comm(), native);
  });
}

void NcclCommunicator::do_all_reduce(Stream& stream, const Tensor& buffer, ReduceOp op) {
  run(stream, "all_reduce", [&](void* native) {
    return job_->library.all_reduce(buffer.data(), buffer.data(), count_of(buffer),
                                    type_of(buffer.dtype()), op_of(op), group_->comm(), native);
  });
}

void NcclCommunicator::do_broadcast(Stream& stream, const Tensor& buffer, int root) {
  run(stream, "broadcast", [&](void* native) {
    return job_->library.broadcast(buffer.data(), buffer.data(), count_of(buffer),
                                   type_of(buffer.dtype()), root, group_->comm(), native);
  });
}

// ---------------------------------------------------------------------------- The first

std::string nccl_missing() try {
  nccl::library();
  return "";
} catch (const Error& error) {
  return error.what();
}

void set_up_nccl_environment(bool share_devices) {
  // Gathers and reductions have communicators and streams of their own. The host issues them in the
  // same order on every rank; NCCL keeps to it on the device only when it is told.
  ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
  if (share_devices) ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
}

void check_shared_devices() {
  int version = 0;
  nccl::library().get_version(&version);
  FSDP_CHECK(version >= nccl::kSharesDevices,
             "[NCCL] several ranks on one GPU: expected NCCL 2.30 or newer, got {}; "
             "runtime.gpu_transport: "
             "host takes any",
             version);
}

std::unique_ptr<Communicator> make_nccl_world(Communicator& control, const NcclOptions& options) {
  auto job = std::make_shared<NcclJob>(options);
  nccl::UniqueId id = {};
  if (control.rank() == 0) {
    job->settle(nullptr, job->library.get_unique_id(&id), "ncclGetUniqueId");
  }
  id = exchange_values(control, id)[0];  // rank 0's
  nccl::Config config = config_of(options);
  nccl::Comm comm = job->make(nullptr, "ncclCommInitRank", [&](nccl::Comm* to) {
    return job->library.init_rank(to, control.size(), id, control.rank(), &config);
  });
  return std::make_unique<NcclCommunicator>(std::move(job), control.duplicate("world control"),
                                            comm, "world");
}

}  // namespace fsdp::comm
