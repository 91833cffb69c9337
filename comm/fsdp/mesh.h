// The ranks of a job as a table: a shard group (a row) holds one copy of the model between its
// ranks, a replica group (a column) holds the same part of it.
//
//   world of 4, shard_size 2      shard group 0:  0 1      replica groups: {0, 2}, {1, 3}
//                                 shard group 1:  2 3
//
// Neighbouring ranks form a shard group, because they share a host more often.
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace fsdp::comm {

class Mesh {
 public:
  // Collective over `world`. `separate_reduce`: reduces get a communicator of their own, so that
  // neither a gather nor a reduce waits behind the other.
  Mesh(Communicator& world, int shard_size, bool separate_reduce);

  int shards() const { return gather_->size(); }
  int replicas() const { return replicas_->size(); }
  int ranks() const { return shards() * replicas(); }
  int shard_index() const { return gather_->rank(); }

  Communicator& gather() const { return *gather_; }
  Communicator& reduce() const { return reduce_ ? *reduce_ : *gather_; }
  Communicator& across_replicas() const { return *replicas_; }
  // The shard group again, for norms and the like on the compute stream.
  Communicator& scalars() const { return *scalars_; }
  bool separate_reduce() const { return reduce_ != nullptr; }
  // A group of `size` neighbours inside the shard group, for gathers. Collective.
  std::unique_ptr<Communicator> inner_group(int size) const;

 private:
  std::unique_ptr<Communicator> gather_;
  std::unique_ptr<Communicator> reduce_;  // null: gather_ serves both
  std::unique_ptr<Communicator> replicas_;
  std::unique_ptr<Communicator> scalars_;
};

}  // namespace fsdp::comm
