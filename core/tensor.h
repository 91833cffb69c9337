// Storage: bytes on a backend that can be dropped and come back while views of it stay valid.
// Tensor: a contiguous view of a Storage, with its place in the autograd graph.
#pragma once

#include <memory>
#include <vector>

#include "core/backend.h"
#include "core/dtype.h"
#include "core/shape.h"

namespace fsdp {

// Owns (or borrows) one block of a backend's memory. Released in the order of its stream.
class Storage {
 public:
  // Allocates now, from the order of `stream` (the backend's compute stream by default).
  Storage(Backend& backend, size_t bytes, MemoryCategory category, Stream* stream = nullptr);
  // Without bytes: to be bound or refilled.
  static std::shared_ptr<Storage> unbound(Backend& backend, size_t bytes, MemoryCategory category);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  Backend& backend() const { return *backend_; }
  size_t bytes() const { return bytes_; }
  bool has_data() const { return data_ != nullptr || bytes_ == 0; }
  // Error when dropped: names what was expected to be unsharded.
  std::byte* data() const;

  void drop();                // gives owned bytes back; aliases stay, without data
  void refill();              // allocates again; contents undefined
  void bind(void* borrowed);  // points at memory that somebody else owns and outlives the use
  void unbind();
  void set_label(std::string label) { label_ = std::move(label); }  // for the error of data()

 private:
  Storage() = default;
  Backend* backend_ = nullptr;
  Stream* stream_ = nullptr;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  MemoryCategory category_ = MemoryCategory::kActivation;
  bool owned_ = false;
  std::string label_;
};

struct AutogradMeta;

class Tensor {
 public:
  Tensor() = default;  // undefined
  Tensor(std::shared_ptr<Storage> storage, int64_t byte_offset, Shape shape, DType dtype)
      : storage_(std::move(storage)), offset_(byte_offset), shape_(shape), dtype_(dtype) {}
  // Uninitialised memory of the compute stream's order.
  static Tensor empty(Backend& backend, Shape shape, DType dtype,
                      MemoryCategory category = MemoryCategory::kActivation);
  static Tensor zeros(Backend& backend, Shape shape, DType dtype,
                      MemoryCategory category = MemoryCategory::kActivation);
  // Copies host values; T is the host type of the dtype.
  template <typename T>
  static Tensor from_host(Backend& backend, Shape shape, const std::vector<T>& values,
                          MemoryCategory category = MemoryCategory::kActivation) {
    FSDP_CHECK(static_cast<int64_t>(values.size()) == shape.numel(),
               "[from_host] values: expected {} for {}, got {}", shape.numel(), shape.str(),
               values.size());
    Tensor out = empty(backend, shape, dtype_of<T>(), category);
    out.write(values.data());
    return out;
  }

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  int64_t numel() const { return shape_.numel(); }
  size_t bytes() const { return static_cast<size_t>(numel()) * size_of(dtype_); }
  Backend& backend() const { return storage_->backend(); }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  int64_t byte_offset() const { return offset_; }
  void* data() const { return storage_->data() + offset_; }
  template <typename T>
  T* data_as() const {
    return reinterpret_cast<T*>(storage_->data() + offset_);
  }

  Tensor view(Shape shape) const;                          // same elements; keeps no graph
  Tensor slice(int64_t first_element, Shape shape) const;  // elements from first_element on
  void write(const void* host_values) const;               // host -> tensor, compute stream order
  // Waits for the compute stream; floating values are converted from the tensor's dtype.
  std::vector<double> to_doubles() const;
  template <typename T>
  std::vector<T> to_host() const {
    FSDP_CHECK(dtype_ == dtype_of<T>(), "[to_host] dtype: tensor is {}", name_of(dtype_));
    std::vector<T> out(static_cast<size_t>(numel()));
    read(out.data());
    return out;
  }
  double item() const;  // of a one-element tensor; waits
  void read(void* host_values) const;

  // ---- autograd: see core/autograd.h ----
  bool requires_grad() const;
  const std::shared_ptr<AutogradMeta>& autograd() const { return autograd_; }
  void set_autograd(std::shared_ptr<AutogradMeta> meta) { autograd_ = std::move(meta); }
  Tensor detached() const;

 private:
  std::shared_ptr<Storage> storage_;
  int64_t offset_ = 0;  // bytes
  Shape shape_;
  DType dtype_ = DType::kF32;
  std::shared_ptr<AutogradMeta> autograd_;
};

}  // namespace fsdp
