// What all units of a model share: the streams of a rank, and the homes of its shards. Owned by
// FullySharded.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "comm/fsdp/home/shard_home.h"
#include "comm/mesh.h"

namespace fsdp::comm {

// The streams of a rank beside the compute stream, and why each is one of its own. (PyTorch FSDP2:
// FSDPCommContext.)
class CommStreams {
 public:
  CommStreams(Backend& backend, bool separate_reduce);

  // Casts a unit's masters into its buffer and gathers it. Not the compute stream: the next unit
  // arrives while this one is computed with.
  Stream& gather() const { return *gather_; }
  // Reduces a unit's gradients. Not the gather stream: in backward the gather of unit i-1 and the
  // reduce of unit i would wait for each other. (Without separate_reduce it is the gather stream.)
  Stream& reduce() const { return reduce_ ? *reduce_ : *gather_; }
  // Averages shards across replicas. Not the reduce stream: replicas are joined by other links than
  // the shard group, which can reduce the next unit meanwhile.
  Stream& replicas() const { return *replicas_; }
  std::vector<Stream*> all() const;  // with the compute stream

 private:
  Backend& backend_;
  std::unique_ptr<Stream> gather_;
  std::unique_ptr<Stream> reduce_;  // null: gather_ serves both
  std::unique_ptr<Stream> replicas_;
};
// Waits for all of them; forgets their errors.
void drain(const std::vector<Stream*>& streams);

struct FsdpRuntime {
  Backend& backend;
  Mesh& mesh;
  CommStreams& streams;
  ShardHomes& homes;
  std::optional<int> ranks_with_pass = {};  // see FullySharded::begin_micro_step
  Tensor overflow = {};  // (), i32: set by a rank's own gradients, until it is shared
};

}  // namespace fsdp::comm
