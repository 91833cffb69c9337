// Contract: comm/fsdp/home/paged_tensors.h.
#include "comm/fsdp/home/paged_tensors.h"

#include <algorithm>

namespace fsdp::comm {
namespace {

std::byte* first_block(const Tensor& memory) {
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  return reinterpret_cast<std::byte*>(
      rounded_to_blocks(address));  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

Tensor file_tensor(Backend& file, Shape shape, DType dtype, MemoryCategory category) {
  const size_t bytes = rounded_to_blocks(static_cast<size_t>(shape.numel()) * size_of(dtype));
  return Tensor(std::make_shared<Storage>(file, bytes, category), 0, shape, dtype);
}

size_t paged_bytes(const Tensor& tensor) { return rounded_to_blocks(tensor.bytes()); }

// A backend's blocks begin where they like.
Tensor page_memory(Backend& host, size_t bytes, MemoryCategory category) {
  const Tensor block = Tensor::empty(
      host, Shape{static_cast<int64_t>((rounded_to_blocks(bytes) + kFileBlock) / sizeof(int32_t))},
      DType::kI32, category);
  const auto skipped = first_block(block) - static_cast<std::byte*>(block.data());
  return block.slice(skipped / static_cast<int64_t>(sizeof(int32_t)),
                     Shape{static_cast<int64_t>(rounded_to_blocks(bytes) / sizeof(int32_t))});
}

void PageBuffers::allocate() {
  for (Buffer& buffer : buffers_) {
    if (bytes_ > 0) buffer.memory = page_memory(host_, bytes_, MemoryCategory::kOptimizerState);
  }
}

void PageBuffers::forget_events() {
  for (Buffer& buffer : buffers_) buffer.free = nullptr;
}

PagedTensors::Paged PagedTensors::add(Shape shape, DType dtype, MemoryCategory category,
                                      Kind kind) {
  FSDP_CHECK(!buffers_.buffers_[0].memory.defined(),
             "[paged tensors] add: expected before the buffers are made");
  const Tensor home = file_tensor(buffers_.file_, shape, dtype, category);
  const auto memory = Storage::unbound(buffers_.host_, home.bytes(), category);
  memory->set_label("a shard that is in its file");
  entries_.push_back({{home, Tensor(memory, 0, shape, dtype)}, kind, bytes_});
  bytes_ += paged_bytes(home);
  buffers_.bytes_ = std::max(buffers_.bytes_, bytes_);
  return entries_.back().paged;
}

void PagedTensors::bring_in(What what) {
  FSDP_CHECK(!buffer_, "[paged tensors] bring_in: expected tensors that are at home");
  buffer_ = &buffers_.buffers_[buffers_.next_];
  buffers_.next_ = 1 - buffers_.next_;
  what_ = what;
  Backend &file = buffers_.file_, &host = buffers_.host_;
  Stream& in = buffers_.in_;
  file.wait(in, buffer_->free);
  if (what == What::kAll) file.wait(in, written_);
  auto* memory = static_cast<std::byte*>(buffer_->memory.data());
  for (Entry& entry : entries_) {
    if (!is_in(entry)) continue;
    entry.paged.here.storage()->bind(memory + entry.offset);
    file.copy(in, entry.paged.here.data(), entry.paged.home.data(), paged_bytes(entry.paged.home));
  }
  host.wait(host.compute_stream(), file.record(in));
}

void PagedTensors::give_back() {
  FSDP_CHECK(buffer_, "[paged tensors] give_back: expected tensors that were brought in");
  Backend &file = buffers_.file_, &host = buffers_.host_;
  Stream& out = buffers_.out_;
  buffer_->free = host.record(host.compute_stream());
  if (what_ == What::kAll) {
    file.wait(out, buffer_->free);
    for (const Entry& entry : entries_) {
      if (entry.kind == Kind::kGiven) continue;
      file.copy(out, entry.paged.home.data(), entry.paged.here.data(),
                paged_bytes(entry.paged.home));
    }
    buffer_->free = written_ = file.record(out);
    // Whoever reads the file by its own stream reads what was written.
    file.wait(file.compute_stream(), written_);
  }
  for (Entry& entry : entries_) {
    if (is_in(entry)) entry.paged.here.storage()->unbind();
  }
  buffer_ = nullptr;
}

}  // namespace fsdp::comm
