// Offsets of parameters and their intersection with shards.
#include "core/flat_layout.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "core/rng.h"

namespace fsdp {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

int64_t blocks_of(int64_t numel) { return round_up(numel, kNormBlock) / kNormBlock; }

// As given, but behind each parameter the one whose predecessor it is.
std::vector<Parameter*> in_layout_order(const std::vector<Parameter*>& given) {
  const std::set<const Parameter*> all(given.begin(), given.end());
  std::map<const Parameter*, Parameter*> behind;
  for (Parameter* p : given) {
    if (all.contains(p->predecessor())) behind.emplace(p->predecessor(), p);
  }
  std::vector<Parameter*> out;
  for (Parameter* first : given) {
    const auto place = behind.find(first->predecessor());
    if (place != behind.end() && place->second == first) continue;
    for (Parameter* p = first; p; p = behind[p]) out.push_back(p);
  }
  return out;
}

// Whether `parameter`, which comes behind `before`, is joined to it.
bool joins(const FlatParameter& before, const Parameter& parameter) {
  return parameter.predecessor() == before.parameter && before.numel % kFlatAlignment == 0;
}

// The parts of `extents`, which are in order, that lie in the `count` elements from `begin` on.
std::vector<ShardPiece> pieces_of(const std::vector<FlatParameter>& extents, int64_t begin,
                                  int64_t count) {
  const int64_t end = begin + count;
  std::vector<ShardPiece> out;
  for (size_t i = 0; i < extents.size(); ++i) {
    const FlatParameter& p = extents[i];
    const int64_t first = std::max(begin, p.offset);
    const int64_t last = std::min(end, p.offset + p.numel);
    if (first >= last) continue;
    out.push_back({static_cast<int>(i), first - p.offset, first - begin, last - first});
  }
  return out;
}

}  // namespace

FlatLayout::FlatLayout(const std::vector<Parameter*>& parameters, int shards, int64_t alignment,
                       int parts_of_shard)
    : shards_(shards), alignment_(alignment) {
  FSDP_CHECK(shards > 0, "[flat_layout] shards: expected at least 1, got {}", shards);
  FSDP_CHECK(parts_of_shard > 0, "[flat_layout] parts of a shard: expected at least 1, got {}",
             parts_of_shard);
  int64_t end = 0;
  for (Parameter* parameter : in_layout_order(parameters)) {
    const FlatParameter* before = parameters_.empty() ? nullptr : &parameters_.back();
    if (!before || !joins(*before, *parameter)) end = round_up(end, alignment);
    parameters_.push_back({parameter, end, parameter->numel()});
    parameter_numel_ += parameter->numel();
    end += parameter->numel();
  }
  shard_numel_ = round_up(round_up(end, alignment * shards) / shards,
                          std::lcm(alignment, int64_t{parts_of_shard}));
}

std::vector<FlatParameter> FlatLayout::joined() const {
  std::vector<FlatParameter> out;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const FlatParameter& p = parameters_[i];
    if (i > 0 && joins(parameters_[i - 1], *p.parameter)) {
      out.back().numel += p.numel;
    } else {
      out.push_back(p);
    }
  }
  return out;
}

std::vector<ShardPiece> FlatLayout::pieces(int shard) const {
  return pieces_of(parameters_, shard * shard_numel_, shard_numel_);
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
  for (const ShardPiece& piece : pieces_of(joined(), shard * shard_numel_, shard_numel_)) {
    out.emplace_back(piece.shard_begin, piece.shard_begin + piece.count);
  }
  return out;
}

std::vector<int64_t> FlatLayout::first_blocks(int shard) const {
  FSDP_CHECK(alignment_ % kNormBlock == 0,
             "[flat_layout] blocks: expected an alignment of {}, got {}", kNormBlock, alignment_);
  const std::vector<FlatParameter> all = joined();
  std::vector<int64_t> before = {0};  // blocks of the parameters before each
  for (const FlatParameter& p : all) before.push_back(before.back() + blocks_of(p.numel));
  std::vector<int64_t> out;
  for (const ShardPiece& piece : pieces_of(all, shard * shard_numel_, shard_numel_)) {
    out.push_back(before[static_cast<size_t>(piece.parameter)] +
                  piece.parameter_begin / kNormBlock);
  }
  return out;
}

int64_t FlatLayout::blocks() const {
  int64_t blocks = 0;
  for (const FlatParameter& p : joined()) blocks += blocks_of(p.numel);
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
                 "[{}] {}: expected all its tensors on the backend of {}'s master", who, shard.name,
                 shards[0].name);
    }
  }
  return backend;
}

}  // namespace fsdp
