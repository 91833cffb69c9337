// Memory of the cache and the copies into it.
#include "core/kv_cache.h"

namespace fsdp {

KvCache::KvCache(Backend& backend, const Spec& spec) : spec_(spec) {
  const Shape shape = {spec.rows, spec.capacity, spec.kv_heads * spec.head_dim};
  FSDP_CHECK(spec.layers > 0 && shape.numel() > 0,
             "[kv_cache] expected positive extents, got {} layers of {}", spec.layers, shape.str());
  const auto allocate = [&] {
    return Tensor::empty(backend, shape, spec.dtype, MemoryCategory::kKeyValueCache);
  };
  for (int64_t i = 0; i < spec.layers; ++i) layers_.push_back({allocate(), allocate()});
}

size_t KvCache::bytes() const { return 2 * layers_.size() * layers_[0].k.bytes(); }

KvCache::Entry KvCache::append(int64_t layer, const HeadView& k, const HeadView& v) {
  FSDP_CHECK(layer >= 0 && layer < spec_.layers, "[kv_cache] layer: expected in [0, {}), got {}",
             spec_.layers, layer);
  const int64_t keys = length_ + k.tensor->shape()[1];
  FSDP_CHECK(keys <= spec_.capacity, "[kv_cache] columns: expected at most {}, got {}",
             spec_.capacity, keys);
  const auto copy = [&](const HeadView& from, const Tensor& tensor) {
    const Shape& x = from.tensor->shape();
    FSDP_CHECK(x[0] == spec_.rows && x[1] == keys - length_ && from.heads == spec_.kv_heads &&
                   from.head_dim == spec_.head_dim && from.tensor->dtype() == spec_.dtype,
               "[kv_cache] expected {} rows of {} heads of {} in {}, got {} of {} of {} in {}",
               spec_.rows, spec_.kv_heads, spec_.head_dim, name_of(spec_.dtype), x[0], from.heads,
               from.head_dim, name_of(from.tensor->dtype()));
    FSDP_CHECK(!from.tensor->requires_grad(), "[kv_cache] not while gradients are recorded");
    const HeadView to = {&tensor, spec_.kv_heads, spec_.head_dim, 0, spec_.head_dim};
    Backend& backend = tensor.backend();
    backend.copy_heads(backend.compute_stream(), from, to, length_);
    return to;
  };
  const Layer& held = layers_[static_cast<size_t>(layer)];
  return {copy(k, held.k), copy(v, held.v), keys};
}

void KvCache::advance(int64_t columns) {
  FSDP_CHECK(columns >= 0 && length_ + columns <= spec_.capacity,
             "[kv_cache] columns: expected at most {}, got {}", spec_.capacity, length_ + columns);
  length_ += columns;
}

}  // namespace fsdp
