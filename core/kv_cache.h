// Keys and values of the tokens that a model has seen, by layer: with them a further token costs
// the work of one token. All rows of a batch have as many columns; padding is hidden by
// AttentionArgs::key_bias. Filled by models/block.cpp. Not here: which token comes next
// (models/sampling.h, tools/generate/generation.h).
#pragma once

#include <vector>

#include "core/layer_values.h"
#include "core/tensor.h"

namespace fsdp {

class KvCache {
 public:
  struct Spec {
    int64_t layers = 0;
    int64_t rows = 0;      // of the batch
    int64_t capacity = 0;  // columns
    int64_t kv_heads = 0;
    int64_t head_dim = 0;
  };
  // 2 * layers * rows * capacity * kv_heads * head_dim elements, counted as kKeyValueCache. A layer
  // takes its memory at its first append, in the dtype of what is appended.
  KvCache(Backend& backend, const Spec& spec);

  int64_t length() const { return length_; }  // columns that all layers hold
  int64_t capacity() const { return spec_.capacity; }
  size_t bytes() const;  // that the layers have taken

  // Adds a layer's keys and values (rows, T, ...) behind the columns of length(). What it returns
  // is valid as long as the cache: all of them, of which the first `keys` columns hold something.
  struct Entry {
    HeadView k, v;  // (rows, capacity, kv_heads * head_dim)
    int64_t keys;   // length() + T
  };
  Entry append(int64_t layer, const HeadView& k, const HeadView& v);
  // After every layer has appended T columns.
  void advance(int64_t columns);
  void clear() { length_ = 0; }

 private:
  struct Layer {
    Tensor k, v;
  };
  HeadView copy(const HeadView& from, Tensor& to);

  Backend& backend_;
  Spec spec_;
  std::vector<Layer> layers_;
  int64_t length_ = 0;
};

}  // namespace fsdp
