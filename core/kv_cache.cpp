// Memory of the cache and the copies into it.
#include "core/kv_cache.h"

#include "core/layer_args.h"

namespace fsdp {

KvCache::KvCache(Backend& backend, const Spec& spec)
    : backend_(backend), spec_(spec), layers_(static_cast<size_t>(spec.layers)) {
  const Shape shape = {spec.rows, spec.capacity, spec.kv_heads * spec.head_dim};
  FSDP_CHECK(spec.layers > 0 && shape.numel() > 0,
             "[kv_cache] expected positive extents, got {} layers of {}", spec.layers, shape.str());
}

size_t KvCache::bytes() const {
  size_t total = 0;
  for (const Layer& layer : layers_) {
    if (layer.v.defined()) total += layer.k.bytes() + layer.v.bytes();
  }
  return total;
}

HeadView KvCache::copy(const HeadView& from, Tensor& to) {
  const Tensor& x = *from.tensor;
  FSDP_CHECK(!x.requires_grad(), "[kv_cache] not while gradients are recorded");
  if (!to.defined()) {
    to = Tensor::empty(backend_, Shape{spec_.rows, spec_.capacity, spec_.kv_heads * spec_.head_dim},
                       x.dtype(), MemoryCategory::kKeyValueCache);
  }
  FSDP_CHECK(x.shape()[0] == spec_.rows && from.heads == spec_.kv_heads &&
                 from.head_dim == spec_.head_dim && x.dtype() == to.dtype(),
             "[kv_cache] expected {} rows of {} heads of {} in {}, got {} of {} of {} in {}",
             spec_.rows, spec_.kv_heads, spec_.head_dim, name_of(to.dtype()), x.shape()[0],
             from.heads, from.head_dim, name_of(x.dtype()));
  const HeadView target = {&to, spec_.kv_heads, spec_.head_dim, 0, spec_.head_dim};
  backend_.run(backend_.compute_stream(), CopyHeadsArgs{from, target, length_});
  return target;
}

KvCache::Entry KvCache::append(int64_t layer, const HeadView& k, const HeadView& v) {
  FSDP_CHECK(layer >= 0 && layer < spec_.layers, "[kv_cache] layer: expected in [0, {}), got {}",
             spec_.layers, layer);
  const int64_t keys = length_ + k.tensor->shape()[1];
  FSDP_CHECK(keys <= spec_.capacity && k.tensor->shape()[1] == v.tensor->shape()[1],
             "[kv_cache] columns: expected at most {}, as many of k and v, got {} and {}",
             spec_.capacity, keys, length_ + v.tensor->shape()[1]);
  Layer& held = layers_[static_cast<size_t>(layer)];
  return {copy(k, held.k), copy(v, held.v), keys};
}

void KvCache::advance(int64_t columns) {
  FSDP_CHECK(columns >= 0 && length_ + columns <= spec_.capacity,
             "[kv_cache] columns: expected at most {}, got {}", spec_.capacity, length_ + columns);
  length_ += columns;
}

}  // namespace fsdp
