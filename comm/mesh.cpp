// Splitting of the world into shard and replica groups.
#include "comm/mesh.h"

namespace fsdp::comm {

Mesh::Mesh(Communicator& world, const MeshOptions& options) {
  const int shard_size = options.shard_size;
  FSDP_CHECK(shard_size >= 1 && world.size() % shard_size == 0,
             "[mesh] shard group size: expected a divisor of {} ranks, got {}", world.size(),
             shard_size);
  const SplitRule by_row = [=](int rank) {
    return SplitPlace{.color = rank / shard_size, .key = rank % shard_size};
  };
  const SplitRule by_column = [=](int rank) {
    return SplitPlace{.color = rank % shard_size, .key = rank / shard_size};
  };
  gather_ = world.split(by_row, "gather");
  if (options.reduce_over_all && world.size() > shard_size) {
    reduce_ = world.duplicate("reduce");
  } else if (options.separate_reduce) {
    reduce_ = world.split(by_row, "reduce");
  }
  replicas_ = world.split(by_column, "replicas");
  scalars_ = world.split(by_row, "scalars");
  all_ranks_ = world.duplicate("flags");
}

Communicator& Mesh::inner_gather(int size) {
  FSDP_CHECK(size >= 1 && shards() % size == 0,
             "[mesh] inner group size: expected a divisor of the {} ranks of a shard group, got {}",
             shards(), size);
  std::unique_ptr<Communicator>& group = inner_[size];
  if (!group) {
    group = gather_->split(
        [=](int rank) { return SplitPlace{.color = rank / size, .key = rank % size}; },
        "inner gather");
  }
  return *group;
}

std::vector<const Communicator*> Mesh::of_a_step() const {
  std::vector<const Communicator*> out = {gather_.get(), replicas_.get()};
  if (reduce_) out.push_back(reduce_.get());
  for (const auto& [size, group] : inner_) out.push_back(group.get());
  return out;
}

}  // namespace fsdp::comm
