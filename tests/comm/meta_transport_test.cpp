// One rank of a world that is not there: its groups are those of real ranks, its counts too.
#include "comm/meta_transport.h"

#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include "comm/local_transport.h"
#include "comm/mesh.h"
#include "kernels/meta/meta_backend.h"

namespace fsdp::comm {
namespace {

struct Groups {
  std::vector<std::vector<int>> members;  // as ranks of the job
  std::vector<int> ranks;
  bool operator==(const Groups&) const = default;
};

Groups groups_of(Communicator& world, int shard_size) {
  Mesh mesh(world, {.shard_size = shard_size, .reduce_over_all = true});
  Groups out;
  for (const Communicator* c : {&mesh.gather(), &mesh.reduce(), &mesh.scalars(),
                                &mesh.across_replicas(), &mesh.inner_gather(shard_size)}) {
    out.members.push_back(c->ring().members());
    out.ranks.push_back(c->rank());
  }
  return out;
}

TEST_CASE("meta world: every rank has the groups that ranks as threads have") {
  for (const int shard_size : {1, 2, 3, 6}) {
    std::vector<Groups> real(6);
    run_local_ranks(6, [&](Communicator& world) {
      real[static_cast<size_t>(world.rank())] = groups_of(world, shard_size);
    });
    for (int rank = 0; rank < 6; ++rank) {
      CAPTURE(rank);
      const auto world = make_meta_world(6, rank);
      CHECK((groups_of(*world, shard_size) == real[static_cast<size_t>(rank)]));
    }
  }
}

TEST_CASE("meta world: ranks agree, whoever they are, and collectives are counted") {
  const auto world = make_meta_world(10000, 9999);
  const std::vector<std::string> said = world->exchange("mine");
  CHECK(said.size() == 10000);
  CHECK(said.front() == "mine");
  meta::MetaBackend backend;
  std::vector<std::string> noted;
  backend.set_recorder([&](const meta::MetaCall& call) {
    if (call.name != "allocate") noted.push_back(fmt::format("{} {}", call.name, call.bytes));
  });
  const Tensor x = Tensor::empty(backend, Shape{20000}, DType::kF32);
  const Tensor slot = x.slice(2 * 9999, Shape{2});
  Stream& stream = backend.compute_stream();
  CHECK(world->all_gather(stream, x)->ready());
  world->reduce_scatter(stream, x, slot, ReduceOp::kAverage);
  world->all_reduce(stream, slot, ReduceOp::kSum);
  world->broadcast(stream, slot, 3);
  CHECK(noted == std::vector<std::string>{"all_gather 80000", "reduce_scatter 80000",
                                          "all_reduce 8", "broadcast 8"});
  CHECK(world->count(Collective::kAllGather).calls == 1);
  CHECK(world->count(Collective::kReduceScatter).bytes == 80000);
  // A wrong call is refused here too.
  CHECK_THROWS_WITH(world->all_gather(stream, Tensor::empty(backend, Shape{5}, DType::kF32)),
                    "[all_gather] world: elements: expected a multiple of 10000 (one slot per "
                    "rank), got 5");
}

TEST_CASE("meta world: whoever prices collectives is told their group") {
  std::vector<std::string> told;
  const auto world = make_meta_world(4, 3, [&](Stream& stream, const MetaCollective& collective) {
    told.push_back(fmt::format("{} {} {} of {}", stream.name(), name_of(collective.kind),
                               collective.bytes, fmt::join(collective.members, " ")));
  });
  Mesh mesh(*world, {.shard_size = 2});
  meta::MetaBackend backend;
  const Tensor x = Tensor::empty(backend, Shape{4}, DType::kBF16);
  mesh.gather().all_gather(backend.compute_stream(), x);
  mesh.across_replicas().all_reduce(backend.compute_stream(), x, ReduceOp::kSum);
  CHECK(told ==
        std::vector<std::string>{"compute all_gather 8 of 2 3", "compute all_reduce 8 of 1 3"});
}

TEST_CASE("meta world: what there is not") {
  CHECK_THROWS_WITH(make_meta_world(0, 0),
                    "[meta world] number of ranks: expected at least 1, got 0");
  CHECK_THROWS_WITH(make_meta_world(2, 2), "[meta world] rank: expected one below 2, got 2");
}

}  // namespace
}  // namespace fsdp::comm
