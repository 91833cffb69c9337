// What a kernel does with one of its tensors. Each struct of kernel arguments says it once, in its
// visit(); costs, texts and "the same call on other tensors" are read from it.
// Read next: core/kernel_args.h.
#pragma once

#include <cstdint>
#include <string_view>

namespace fsdp {

struct TensorRole {
  enum class Use : uint8_t { kIn, kOut, kInOut };
  // What must be in it, so that the call does the work that it does in a step.
  enum class Content : uint8_t { kNumbers, kZeros, kOnes, kIndices, kDocuments };

  Use use = Use::kIn;
  bool is_small = false;  // a vector, statistics, indices, a scalar: its bytes are no cost
  bool is_size = false;   // its extents say how much work there is
  Content content = Content::kNumbers;
  int64_t below = 1;        // of indices: they are within [0, below)
  int64_t document = 1;     // of first_key of attention: the length of each document in a row
  bool from_memory = true;  // false: the caches have it, because the step has just written it
  std::string_view word{};  // said of one that may be left out, when it is given

  constexpr TensorRole size() const { return with(&TensorRole::is_size, true); }
  constexpr TensorRole small() const { return with(&TensorRole::is_small, true); }
  constexpr TensorRole zeros() const { return with(&TensorRole::content, Content::kZeros); }
  constexpr TensorRole ones() const { return with(&TensorRole::content, Content::kOnes); }
  constexpr TensorRole indices(int64_t count) const {
    return small().with(&TensorRole::content, Content::kIndices).with(&TensorRole::below, count);
  }
  constexpr TensorRole documents(int64_t length) const {
    return small()
        .with(&TensorRole::content, Content::kDocuments)
        .with(&TensorRole::document, length);
  }
  constexpr TensorRole memory(bool from) const { return with(&TensorRole::from_memory, from); }
  constexpr TensorRole says(std::string_view text) const { return with(&TensorRole::word, text); }

 private:
  template <typename T>
  constexpr TensorRole with(T TensorRole::*member, T value) const {
    TensorRole out = *this;
    out.*member = value;
    return out;
  }
};

constexpr TensorRole kIn = {.use = TensorRole::Use::kIn};
constexpr TensorRole kOut = {.use = TensorRole::Use::kOut};
constexpr TensorRole kInOut = {.use = TensorRole::Use::kInOut};

}  // namespace fsdp
