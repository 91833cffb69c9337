// The table of shard and replica groups.
#include "comm/mesh.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

// World ranks of a group, by rank in the group.
std::vector<int> members(Communicator& group, int world_rank) {
  std::vector<int> out;
  for (const std::string& rank : group.exchange(std::to_string(world_rank))) {
    out.push_back(std::stoi(rank));
  }
  return out;
}
using Ranks = std::vector<int>;

}  // namespace

TEST_CASE("neighbours form shard groups, equal places form replica groups") {
  run_local_ranks(6, [](Communicator& world) {
    const int me = world.rank();
    for (const int shards : {1, 2, 3, 6}) {
      CAPTURE(shards);
      const Mesh mesh(world, {.shard_size = shards});
      CHECK(mesh.shards() == shards);
      CHECK(mesh.replicas() == 6 / shards);
      CHECK(mesh.ranks() == 6);
      CHECK(mesh.shard_index() == me % shards);
      Ranks row, column;
      for (int i = 0; i < shards; ++i) row.push_back(me / shards * shards + i);
      for (int i = me % shards; i < 6; i += shards) column.push_back(i);
      CHECK(members(mesh.gather(), me) == row);
      CHECK(members(mesh.reduce(), me) == row);
      CHECK(members(mesh.scalars(), me) == row);
      CHECK(members(mesh.across_replicas(), me) == column);
    }
  });
}

TEST_CASE("reduces have a communicator of their own unless told otherwise") {
  run_local_ranks(2, [](Communicator& world) {
    const Mesh separate(world, {.shard_size = 2});
    const Mesh shared(world, {.shard_size = 2, .separate_reduce = false});
    CHECK(&separate.reduce() != &separate.gather());
    CHECK(&shared.reduce() == &shared.gather());
    CHECK(separate.of_a_step().size() == shared.of_a_step().size() + 1);
  });
}

TEST_CASE("reduces over all ranks, where asked for and where there are replicas") {
  run_local_ranks(4, [](Communicator& world) {
    for (const int shards : {1, 2, 4}) {
      CHECK(Mesh(world, {.shard_size = shards}).reduce().size() == shards);
      const Mesh mesh(world, {.shard_size = shards, .reduce_over_all = true});
      CHECK(mesh.all_ranks().size() == 4);
      CHECK(members(mesh.reduce(), world.rank()) == Ranks{0, 1, 2, 3});
      CHECK(mesh.replica_index() == world.rank() / shards);
      const Mesh shared(world,
                        {.shard_size = shards, .separate_reduce = false, .reduce_over_all = true});
      CHECK((&shared.reduce() == &shared.gather()) == (shards == 4));
    }
  });
}

TEST_CASE("inner groups are neighbours inside the shard group") {
  run_local_ranks(8, [](Communicator& world) {
    const int me = world.rank();
    Mesh mesh(world, {.shard_size = 4});
    for (const int size : {1, 2, 4}) {
      Communicator& inner = mesh.inner_gather(size);
      CHECK(&inner == &mesh.inner_gather(size));
      Ranks expected;
      for (int i = 0; i < size; ++i) expected.push_back(me / size * size + i);
      CHECK(members(inner, me) == expected);
    }
    CHECK(contains(error_of([&] { mesh.inner_gather(3); }),
                   "inner group size: expected a divisor of the 4 ranks of a shard group, got 3"));
  });
}

TEST_CASE("a shard group that does not divide the world is refused") {
  run_local_ranks(4, [](Communicator& world) {
    for (const int shards : {0, 3, 5, 8}) {
      CHECK(error_of([&] { Mesh(world, {.shard_size = shards}); }) ==
            fmt::format("[mesh] shard group size: expected a divisor of 4 ranks, got {}", shards));
    }
  });
}
