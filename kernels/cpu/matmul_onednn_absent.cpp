// MatmulCache where oneDNN is not installed: supports nothing, so that Eigen computes everything.
#include "kernels/cpu/matmul.h"

namespace fsdp::cpu {

struct MatmulCache::Impl {};

MatmulCache::MatmulCache(bool fixed_tiles) : fixed_tiles_(fixed_tiles) {}
MatmulCache::~MatmulCache() = default;

bool MatmulCache::supports(DType, DType) { return false; }

void MatmulCache::multiply(const Product&, const ProductData&, ThreadTeam&) {
  fail("[matmul] oneDNN: not in this build");
}

ProductNeed MatmulCache::need(const Product&, int, bool) { return {}; }

}  // namespace fsdp::cpu
