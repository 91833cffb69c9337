// The ranks of a job as a table: a shard group (a row) holds one copy of the model between its
// ranks, a replica group (a column) holds the same part of it.
//
//   world of 4, shard_size 2      shard group 0:  0 1      replica groups: {0, 2}, {1, 3}
//                                 shard group 1:  2 3
//
// Neighbouring ranks form a shard group, because they share a host more often. Every kind of call
// has a communicator of its own: calls of one communicator run in the order in which they are made,
// so two kinds that share one would wait for each other.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace fsdp::comm {

struct MeshOptions {
  int shard_size = 1;            // ranks of a shard group
  bool separate_reduce = true;   // reduces have a communicator of their own
  bool reduce_over_all = false;  // that is one of all ranks, also where there are replicas
};

class Mesh {
 public:
  // Collective over `world`.
  Mesh(Communicator& world, const MeshOptions& options);

  int shards() const { return gather_->size(); }
  int replicas() const { return replicas_->size(); }
  int ranks() const { return shards() * replicas(); }
  int shard_index() const { return gather_->rank(); }
  int replica_index() const { return replicas_->rank(); }  // of this rank's shard group

  // Communicators of the shard group: for gathers, for reduces (of all ranks with reduce_over_all),
  // and for norms and other scalars (compute stream).
  Communicator& gather() const { return *gather_; }
  Communicator& reduce() const { return reduce_ ? *reduce_ : *gather_; }
  Communicator& scalars() const { return *scalars_; }
  Communicator& across_replicas() const { return *replicas_; }
  // Of all ranks: for flags and initial values, on the compute stream; flags of one unit on the
  // reduce stream. Events order the two.
  Communicator& all_ranks() const { return *all_ranks_; }
  // A group of `size` neighbours inside the shard group, for gathers. The first call for a size is
  // collective.
  Communicator& inner_gather(int size);

  // The communicators whose calls a step makes ahead of its streams, for check_same_on_all.
  std::vector<const Communicator*> of_a_step() const;

 private:
  std::unique_ptr<Communicator> gather_;
  std::unique_ptr<Communicator> reduce_;  // null: gather_ serves both
  std::unique_ptr<Communicator> replicas_;
  std::unique_ptr<Communicator> scalars_;
  std::unique_ptr<Communicator> all_ranks_;
  std::map<int, std::unique_ptr<Communicator>> inner_;  // by size
};

}  // namespace fsdp::comm
