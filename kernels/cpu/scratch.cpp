// Contract: kernels/cpu/scratch.h. The kernels call the same functions for what they take.
#include "kernels/cpu/scratch.h"

#include <algorithm>

#include "core/memory_ledger.h"
#include "core/tensor.h"
#include "kernels/cpu/attention_scratch.h"
#include "kernels/cpu/row_blocks.h"

namespace fsdp::cpu {
namespace {

size_t accumulated(DType dtype) { return size_of(accumulation_dtype(dtype)); }

}  // namespace

ScratchNeed scratch_of(const SumRowsArgs& args) {
  const RowBlocks blocks(args.x.shape().rows(), kLeastSummedRows);
  const int64_t elements = std::max<int64_t>(1, blocks.count * args.out.numel());
  return {.bytes = static_cast<size_t>(elements) * accumulated(args.x.dtype())};
}

ScratchNeed scratch_of(const ActivationBackwardArgs& args) {
  if (!args.dbias) return {};
  return scratch_of(SumRowsArgs{.x = args.x, .out = *args.dbias});
}

ScratchNeed scratch_of(const NormBackwardArgs& args) {
  const RowBlocks blocks(args.x.shape().rows(), kLeastNormRows);
  const int64_t elements = blocks.count * 2 * args.x.shape().last();  // dweight, dbias
  return {.bytes = static_cast<size_t>(elements) * accumulated(args.x.dtype())};
}

ScratchNeed scratch_of(const CrossEntropyArgs& args) {
  return {.bytes =
              static_cast<size_t>(args.logits.shape().rows()) * accumulated(args.logits.dtype())};
}

ScratchNeed scratch_of(const AttentionForwardArgs& args) {
  const AttentionExtents e(args.in);
  return {.bytes = forward_scratch_elements(e.head_dim) * accumulated(args.out.dtype()),
          .by_all = e.batch * e.heads * e.chunks() > 1};
}

ScratchNeed scratch_of(const AttentionBackwardArgs& args) {
  const AttentionExtents e(args.in);
  return {.bytes = backward_scratch_elements(e.head_dim, e.keys) * accumulated(args.out.dtype()),
          .by_all = e.batch * e.kv_heads > 1};
}

size_t PlannedScratch::plan(const ScratchNeed& need) {
  size_t growth = 0;
  const auto at_least = [&](size_t& held, size_t bytes) {
    bytes = rounded_bytes(bytes);
    if (bytes <= held) return;
    growth += bytes - held;
    held = bytes;
  };
  const size_t threads = need.by_all ? of_thread_.size() : 1;
  for (size_t i = 0; i < threads; ++i) at_least(of_thread_[i], need.bytes);
  for (int i = 0; i < need.products.threads; ++i) {
    at_least(products_[static_cast<size_t>(i)], need.products.bytes);
    at_least(copies_[static_cast<size_t>(i)], need.products.copied);
  }
  return growth;
}

ScratchNeed ProductScratch::of(const MatmulArgs& args, int threads) {
  const Product product = product_of(args);
  if (product.m == 0 || product.n == 0 || product.k == 0) return {};
  if (!is_converted(product)) return {.products = of_native(product, threads)};
  using Tiles = ConversionTiles;
  // The first tile is the largest; later ones may be smaller, whose code wants no more.
  Product tile = product;
  tile.operand = tile.result = DType::kF32;
  tile.m = std::min(Tiles::kM, product.m);
  tile.n = std::min(Tiles::kN, product.n);
  tile.k = std::min(Tiles::kK, product.k);
  tile.lda = (product.transpose_a ? tile.m : tile.k) + Tiles::kPad;
  tile.ldb = (product.transpose_b ? tile.k : tile.n) + Tiles::kPad;
  const bool direct = product.result == DType::kF32;
  tile.ldc = direct ? product.ldc : tile.n + Tiles::kPad;
  tile.accumulate = direct && product.accumulate;
  return {.bytes = Tiles::kBytes, .products = of_native(tile, threads)};
}

ProductNeed ProductScratch::of_native(const Product& product, int threads) {
  if (!MatmulCache::supports(product.operand, product.result)) return {};  // Eigen's
  constexpr size_t kMost = 4096;  // then start afresh: generation meets ever new shapes
  if (known_.size() >= kMost) known_.clear();
  const auto known = known_.find(product);
  if (known != known_.end()) return known->second;
  return known_[product] = MatmulCache::need(product, threads, fixed_tiles_);
}

}  // namespace fsdp::cpu
