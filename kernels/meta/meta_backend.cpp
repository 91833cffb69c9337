// Addresses, answers, and one line a kernel.
#include "kernels/meta/meta_backend.h"

#include <cstring>

namespace fsdp::meta {
namespace {

// Far above what a program maps, so that following an address by mistake ends it at once.
constexpr uintptr_t kFirstAddress = uintptr_t{1} << 56;

class MetaStream final : public Stream {
 public:
  MetaStream(Backend& backend, std::string name) : Stream(backend, std::move(name)) {}
};

class ReadyEvent final : public Event {
 public:
  void wait() override {}
  bool ready() const override { return true; }
};

}  // namespace

MetaBackend::MetaBackend(const MetaOptions& options)
    : next_(kFirstAddress),
      ready_(std::make_shared<ReadyEvent>()),
      compute_stream_(std::make_unique<MetaStream>(*this, "compute")) {
  if (!options.predicts_workspace) ledger_.set_unpredictable(MemoryCategory::kWorkspace);
}

MetaBackend::~MetaBackend() = default;

void MetaBackend::note(const Stream& stream, std::string_view name, int64_t bytes) {
  FSDP_CHECK(&stream.backend() == this, "[{}] stream {}: belongs to another backend ({})", name,
             stream.name(), stream.backend().name());
  if (recorder_) recorder_({.stream = stream, .name = name, .bytes = bytes, .scope = scope_});
}

// ---- Memory ----

void* MetaBackend::allocate(Stream& stream, size_t bytes, MemoryCategory category) {
  if (bytes == 0) return nullptr;
  const uintptr_t address = next_;
  next_ += rounded_bytes(bytes);
  ledger_.add(category, bytes);
  note(stream, "allocate", static_cast<int64_t>(bytes));
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

void MetaBackend::release(Stream&, void* data, size_t bytes, MemoryCategory category) {
  if (data) ledger_.subtract(category, bytes);
}

void MetaBackend::copy(Stream& stream, void* destination, const void* source, size_t bytes) {
  if (bytes == 0 || destination == source) return;
  note(stream, "copy", static_cast<int64_t>(bytes));
}

void MetaBackend::fill_zero(Stream& stream, void*, size_t bytes) {
  if (bytes > 0) note(stream, "fill_zero", static_cast<int64_t>(bytes));
}

void MetaBackend::copy_from_host(Stream& stream, void*, const void*, size_t bytes) {
  if (bytes > 0) note(stream, "copy_from_host", static_cast<int64_t>(bytes));
}

void MetaBackend::copy_to_host(Stream& stream, void* destination, const void*, size_t bytes) {
  if (bytes == 0) return;
  note(stream, "copy_to_host", static_cast<int64_t>(bytes));
  std::memset(destination, 0, bytes);
}

EventPtr MetaBackend::read_later(Stream& stream, void* destination, const void* source,
                                 size_t bytes, std::function<void()> arrived) {
  copy_to_host(stream, destination, source, bytes);
  if (arrived) arrived();
  return ready_;
}

std::shared_ptr<std::byte> MetaBackend::staging_memory(size_t) {
  fail("[meta] staging memory: transports reach what is not there as well as any");
}

// ---- Order ----

std::unique_ptr<Stream> MetaBackend::create_stream(std::string name) {
  return std::make_unique<MetaStream>(*this, std::move(name));
}

EventPtr MetaBackend::record(Stream&) { return ready_; }

void MetaBackend::host_task(Stream& stream, std::string_view name, int64_t bytes,
                            std::function<void()> task) {
  note(stream, name, bytes);
  task();
}

// ---- Math: nothing is computed ----

void MetaBackend::matmul(Stream& stream, const MatmulArgs&) { note(stream, "matmul"); }
void MetaBackend::sum_rows(Stream& stream, const SumRowsArgs&) { note(stream, "sum_rows"); }
void MetaBackend::layer_norm_forward(Stream& stream, const NormForwardArgs&) {
  note(stream, "layer_norm_forward");
}
void MetaBackend::layer_norm_backward(Stream& stream, const NormBackwardArgs&) {
  note(stream, "layer_norm_backward");
}
void MetaBackend::rms_norm_forward(Stream& stream, const NormForwardArgs&) {
  note(stream, "rms_norm_forward");
}
void MetaBackend::rms_norm_backward(Stream& stream, const NormBackwardArgs&) {
  note(stream, "rms_norm_backward");
}
void MetaBackend::activation_forward(Stream& stream, Activation, const Tensor&, Tensor&) {
  note(stream, "activation_forward");
}
void MetaBackend::activation_backward(Stream& stream, Activation, const Tensor&, const Tensor&,
                                      Tensor&) {
  note(stream, "activation_backward");
}
void MetaBackend::glu_forward(Stream& stream, Activation, const Tensor&, const Tensor&, Tensor&) {
  note(stream, "glu_forward");
}
void MetaBackend::glu_backward(Stream& stream, Activation, const Tensor&, const Tensor&,
                               const Tensor&, Tensor&, Tensor&) {
  note(stream, "glu_backward");
}
void MetaBackend::rope(Stream& stream, const RopeArgs&) { note(stream, "rope"); }
void MetaBackend::copy_heads(Stream& stream, const HeadView&, const HeadView&, int64_t) {
  note(stream, "copy_heads");
}
void MetaBackend::attention_forward(Stream& stream, const AttentionForwardArgs&) {
  note(stream, "attention_forward");
}
void MetaBackend::attention_backward(Stream& stream, const AttentionBackwardArgs&) {
  note(stream, "attention_backward");
}
void MetaBackend::embedding_forward(Stream& stream, const Tensor&, const Tensor&, const Tensor*,
                                    int64_t, Tensor&) {
  note(stream, "embedding_forward");
}
void MetaBackend::embedding_backward(Stream& stream, const Tensor&, const Tensor&, Tensor&, bool) {
  note(stream, "embedding_backward");
}
void MetaBackend::position_backward(Stream& stream, const Tensor&, Tensor&, bool) {
  note(stream, "position_backward");
}
void MetaBackend::dropout(Stream& stream, const DropoutArgs&, const Tensor&, Tensor&) {
  note(stream, "dropout");
}
void MetaBackend::cross_entropy(Stream& stream, const CrossEntropyArgs&) {
  note(stream, "cross_entropy");
}
void MetaBackend::add(Stream& stream, const Tensor&, const Tensor&, Tensor&) {
  note(stream, "add");
}
void MetaBackend::cast(Stream& stream, const Tensor&, Tensor&) { note(stream, "cast"); }
void MetaBackend::divide(Stream& stream, Tensor&, double) { note(stream, "divide"); }
void MetaBackend::fill_normal(Stream& stream, Tensor&, double, double, uint64_t, uint64_t,
                              int64_t) {
  note(stream, "fill_normal");
}
void MetaBackend::round_stochastically(Stream& stream, const StochasticRoundArgs&) {
  note(stream, "round_stochastically");
}
void MetaBackend::adam(Stream& stream, const AdamArgs&) { note(stream, "adam"); }
void MetaBackend::sgd(Stream& stream, const SgdArgs&) { note(stream, "sgd"); }
void MetaBackend::advance_steps(Stream& stream, Tensor&, const Tensor&, const Tensor&) {
  note(stream, "advance_steps");
}
void MetaBackend::power_sum(Stream& stream, const PowerSumArgs&) { note(stream, "power_sum"); }
void MetaBackend::clip_coefficient(Stream& stream, const ClipArgs&) {
  note(stream, "clip_coefficient");
}
void MetaBackend::find_overflow(Stream& stream, const OverflowArgs&) {
  note(stream, "find_overflow");
}
void MetaBackend::update_loss_scale(Stream& stream, const LossScaleArgs&) {
  note(stream, "update_loss_scale");
}

}  // namespace fsdp::meta
