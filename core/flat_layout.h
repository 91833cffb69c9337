// The one description of a flat buffer that holds several parameters: which parameter lies where,
// and which elements a shard owns. FSDP gathers by it, the optimizer steps by it, checkpoints name
// (parameter, element range) through it.
//
// Offsets do not depend on dtype, backend or number of shards; only the padding at the tail does:
//
//   | embed.weight | gap | norm.weight | gap | ... | tail padding |
//   |<------ shard 0 ------>|<------ shard 1 ------>|<- shard 2 ->|
//
// Every shard, and every parameter that is not joined, starts at a multiple of the alignment. Gaps
// and padding are undefined: they are copied, but no result depends on them. A shard may be cut
// into equal parts, one for each replica that adds it up.
//
// Parameters lie in the order in which they are given, except that one with a predecessor among
// them lies behind that one. A predecessor of a multiple of kFlatAlignment elements is joined: no
// gap comes behind it, whatever the alignment, and an op can take the two as one tensor:
//
//   | q.weight | k.weight | v.weight | q.bias | k.bias | v.bias | out.weight | gap | ...
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/autograd.h"
#include "core/shard_values.h"

namespace fsdp {

constexpr int64_t kFlatAlignment = 64;  // elements: a cache line even for 8-bit types

struct FlatParameter {
  Parameter* parameter = nullptr;
  int64_t offset = 0;  // elements from the start of the flat buffer
  int64_t numel = 0;
};

// The part of one parameter that lies in one shard.
struct ShardPiece {
  int parameter = 0;            // index into FlatLayout::parameters()
  int64_t parameter_begin = 0;  // first element within the parameter
  int64_t shard_begin = 0;      // first element within the shard
  int64_t count = 0;
};

class FlatLayout {
 public:
  FlatLayout(const std::vector<Parameter*>& parameters, int shards,
             int64_t alignment = kFlatAlignment,  // elements
             int parts_of_shard = 1);

  const std::vector<FlatParameter>& parameters() const { return parameters_; }
  int shards() const { return shards_; }
  int64_t parameter_numel() const { return parameter_numel_; }  // without gaps and padding
  int64_t numel() const { return shard_numel_ * shards_; }      // with both
  int64_t shard_numel() const { return shard_numel_; }
  std::vector<ShardPiece> pieces(int shard) const;
  // The pieces of a shard with what the optimizer needs to know of them.
  std::vector<ShardSegment> segments(int shard) const;
  // The pieces of a shard with what numbers by chance are keyed by; `suffix`: after every name.
  std::vector<ParameterRun> runs(int shard, std::string_view suffix = "") const;
  // A shard's elements without gaps and padding; parameters that are joined, as one.
  std::vector<std::pair<int64_t, int64_t>> spans(int shard) const;
  // Where the kNormBlock blocks of each span count among those of all parameters, which are
  // numbered through in layout order, whatever the number of shards. Parameters that are joined are
  // cut into blocks as one. Needs an alignment that keeps shards from cutting blocks.
  std::vector<int64_t> first_blocks(int shard) const;
  int64_t blocks() const;

 private:
  // Parameters that are joined as one, by the first of them; any other by itself.
  std::vector<FlatParameter> joined() const;

  std::vector<FlatParameter> parameters_;
  int shards_;
  int64_t parameter_numel_ = 0;
  int64_t shard_numel_ = 0;
  int64_t alignment_;
};

// How the optimizer reaches a shard, which need not be in memory between two uses. As it stands: of
// a shard that always is. Others: comm/fsdp/home.
class ShardAccess {
 public:
  ShardAccess() = default;
  virtual ~ShardAccess() = default;
  ShardAccess(const ShardAccess&) = delete;
  ShardAccess& operator=(const ShardAccess&) = delete;

  struct State {
    Tensor values;  // (n), beside the master: in memory between begin and end
    Tensor stored;  // the same where it is always
  };
  // One more value for every element of the master: zeros. When the optimizer is made.
  virtual State add_state(const Tensor& master, DType dtype);

  enum class Use : uint8_t {
    kNorm,    // the gradient is read
    kUpdate,  // the gradient is read, all else is changed
  };
  // What is enqueued between the two, on the compute stream of the master's backend, finds the
  // shard in memory.
  virtual void begin(Use) {}
  virtual void end(Use) {}
};

// One rank's part of one flat buffer, as the optimizer sees it. Memory belongs to the sharding
// layer. All tensors are on one backend, which need not be the one that computes the model.
struct OptimizerShard {
  std::string name;  // of the unit
  FlatLayout layout;
  int index = 0;    // of this shard among the layout's
  Tensor master;    // (n), f32, or f64 when compute is f64; f32's may be bf16 or f16
  Tensor gradient;  // (n), f32 or f64: reduced, valid after backward
  Tensor copy;      // (n): resident values in the compute dtype to keep equal; often undefined
  Tensor present;   // (parameters), i32: 1 where the parameter had a gradient, on any rank
  // Norms are summed by the layout's blocks, so that no number of shards changes their bits. Those
  // of the root come first, of which there may be several: so no way to cut it changes them either.
  bool norm_by_blocks = false;
  bool of_root = false;
  std::shared_ptr<ShardAccess> access = std::make_shared<ShardAccess>();
};

// The one backend of all shards. Error, which begins with `who`, when there are no shards or
// several backends.
Backend& backend_of(const std::vector<OptimizerShard>& shards, std::string_view who);

}  // namespace fsdp
