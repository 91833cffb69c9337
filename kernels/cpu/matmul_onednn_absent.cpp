// MatmulCache where oneDNN is not installed: supports nothing, so that Eigen computes everything.
#include "kernels/cpu/matmul.h"

namespace fsdp::cpu {

struct MatmulCache::Impl {};

MatmulCache::MatmulCache(bool one_thread) : one_thread_(one_thread) {}
MatmulCache::~MatmulCache() = default;

bool MatmulCache::supports(DType, DType) { return false; }

void MatmulCache::multiply(const Product&, const ProductData&, ThreadTeam&) {
  fail("[matmul] oneDNN: not in this build");
}

size_t MatmulCache::scratch_bytes(const Product&, int) { return 0; }

}  // namespace fsdp::cpu
