// Storage: allocation in stream order, dropping, refilling, binding to borrowed memory.
#include "core/tensor.h"

namespace fsdp {

Storage::Storage(Backend& backend, size_t bytes, MemoryCategory category, Stream* stream)
    : backend_(&backend),
      stream_(stream ? stream : &backend.compute_stream()),
      bytes_(bytes),
      category_(category) {
  refill();
}

std::shared_ptr<Storage> Storage::unbound(Backend& backend, size_t bytes, MemoryCategory category) {
  std::shared_ptr<Storage> storage(new Storage());
  storage->backend_ = &backend;
  storage->stream_ = &backend.compute_stream();
  storage->bytes_ = bytes;
  storage->category_ = category;
  return storage;
}

Storage::~Storage() {
  if (owned_ && data_) backend_->release(*stream_, data_, bytes_, category_);
}

std::byte* Storage::data() const {
  FSDP_CHECK(has_data(), "[storage] {}: {} bytes were dropped; expected to be unsharded here",
             label_.empty() ? "tensor" : label_, bytes_);
  return data_;
}

void Storage::drop() {
  if (owned_ && data_) backend_->release(*stream_, data_, bytes_, category_);
  data_ = nullptr;
  owned_ = false;
}

void Storage::refill() {
  if (bytes_ == 0 || data_) return;
  data_ = static_cast<std::byte*>(backend_->allocate(*stream_, bytes_, category_));
  owned_ = true;
}

void Storage::bind(void* borrowed) {
  drop();
  data_ = static_cast<std::byte*>(borrowed);
}

void Storage::unbind() {
  FSDP_CHECK(!owned_, "[storage] {}: unbind of owned bytes; drop() them", label_);
  data_ = nullptr;
}

}  // namespace fsdp
