// Splitting of the world into shard and replica groups.
#include "comm/fsdp/mesh.h"

namespace fsdp::comm {

Mesh::Mesh(Communicator& world, int shard_size, bool separate_reduce) {
  FSDP_CHECK(shard_size >= 1 && world.size() % shard_size == 0,
             "[mesh] shard group size: expected a divisor of {} ranks, got {}", world.size(),
             shard_size);
  const int row = world.rank() / shard_size;
  const int column = world.rank() % shard_size;
  gather_ = world.split(row, column, "gather");
  if (separate_reduce) reduce_ = world.split(row, column, "reduce");
  replicas_ = world.split(column, row, "replicas");
  scalars_ = world.split(row, column, "scalars");
}

std::unique_ptr<Communicator> Mesh::inner_group(int size) const {
  FSDP_CHECK(size >= 1 && shards() % size == 0,
             "[mesh] inner group size: expected a divisor of the {} ranks of a shard group, got {}",
             shards(), size);
  return gather_->split(shard_index() / size, shard_index() % size, "inner gather");
}

}  // namespace fsdp::comm
