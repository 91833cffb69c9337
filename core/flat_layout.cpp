// Offsets of parameters and their intersection with shards.
#include "core/flat_layout.h"

#include <algorithm>
#include <numeric>

namespace fsdp {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

FlatLayout::FlatLayout(const std::vector<Parameter*>& parameters, int shards, int64_t alignment,
                       int parts_of_shard)
    : shards_(shards), alignment_(alignment) {
  FSDP_CHECK(shards > 0, "[flat_layout] shards: expected at least 1, got {}", shards);
  FSDP_CHECK(parts_of_shard > 0, "[flat_layout] parts of a shard: expected at least 1, got {}",
             parts_of_shard);
  int64_t offset = 0;
  for (Parameter* parameter : parameters) {
    parameters_.push_back({parameter, offset, parameter->numel()});
    parameter_numel_ += parameter->numel();
    offset = round_up(offset + parameter->numel(), alignment);
  }
  shard_numel_ = round_up(round_up(offset, alignment * shards) / shards,
                          std::lcm(alignment, int64_t{parts_of_shard}));
}

std::vector<ShardPiece> FlatLayout::pieces(int shard) const {
  const int64_t begin = shard * shard_numel_;
  const int64_t end = begin + shard_numel_;
  std::vector<ShardPiece> out;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const FlatParameter& p = parameters_[i];
    const int64_t first = std::max(begin, p.offset);
    const int64_t last = std::min(end, p.offset + p.numel);
    if (first >= last) continue;
    out.push_back({static_cast<int>(i), first - p.offset, first - begin, last - first});
  }
  return out;
}

std::vector<ShardSegment> FlatLayout::segments(int shard) const {
  std::vector<ShardSegment> out;
  for (const ShardPiece& piece : pieces(shard)) {
    out.push_back({.begin = piece.shard_begin,
                   .end = piece.shard_begin + piece.count,
                   .decay = parameters_[static_cast<size_t>(piece.parameter)].parameter->decay(),
                   .parameter = piece.parameter,
                   .first = piece.parameter_begin});
  }
  return out;
}

std::vector<ParameterRun> FlatLayout::runs(int shard, std::string_view suffix) const {
  std::vector<ParameterRun> out;
  for (const ShardPiece& piece : pieces(shard)) {
    const FlatParameter& p = parameters_[static_cast<size_t>(piece.parameter)];
    out.push_back({.begin = piece.shard_begin,
                   .end = piece.shard_begin + piece.count,
                   .name_hash = hash_name(p.parameter->name() + std::string(suffix)),
                   .first = piece.parameter_begin});
  }
  return out;
}

std::vector<std::pair<int64_t, int64_t>> FlatLayout::spans(int shard) const {
  std::vector<std::pair<int64_t, int64_t>> out;
  for (const ShardPiece& piece : pieces(shard)) {
    out.emplace_back(piece.shard_begin, piece.shard_begin + piece.count);
  }
  return out;
}

std::vector<int64_t> FlatLayout::first_blocks(int shard) const {
  FSDP_CHECK(alignment_ % kNormBlock == 0,
             "[flat_layout] blocks: expected an alignment of {}, got {}", kNormBlock, alignment_);
  std::vector<int64_t> before = {0};  // blocks of the parameters before each
  for (const FlatParameter& p : parameters_) {
    before.push_back(before.back() + round_up(p.numel, kNormBlock) / kNormBlock);
  }
  std::vector<int64_t> out;
  for (const ShardPiece& piece : pieces(shard)) {
    out.push_back(before[static_cast<size_t>(piece.parameter)] +
                  piece.parameter_begin / kNormBlock);
  }
  return out;
}

int64_t FlatLayout::blocks() const {
  int64_t blocks = 0;
  for (const FlatParameter& p : parameters_) blocks += round_up(p.numel, kNormBlock) / kNormBlock;
  return blocks;
}

ShardAccess::State ShardAccess::add_state(const Tensor& master, DType dtype) {
  const Tensor values =
      Tensor::zeros(master.backend(), master.shape(), dtype, MemoryCategory::kOptimizerState);
  return {values, values};
}

Backend& backend_of(const std::vector<OptimizerShard>& shards, std::string_view who) {
  FSDP_CHECK(!shards.empty(), "[{}] shards: expected at least one", who);
  Backend& backend = shards[0].master.backend();
  for (const OptimizerShard& shard : shards) {
    for (const Tensor* tensor : {&shard.master, &shard.gradient, &shard.copy}) {
      FSDP_CHECK(!tensor->defined() || &tensor->backend() == &backend,
                 "[{}] {}: expected its tensors on one backend, that of the master of {}", who,
                 shard.name, shards[0].name);
    }
  }
  return backend;
}

}  // namespace fsdp
