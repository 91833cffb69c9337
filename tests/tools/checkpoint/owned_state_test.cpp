// Every element of the state is one rank's, and hashes see every bit of it, however it is sharded.
#include "tools/checkpoint/owned_state.h"

#include <mutex>

#include <doctest/doctest.h>

#include "tests/support/checkpoint_run.h"

namespace fsdp::tools {
namespace {

TEST_CASE("owned state: every element of every tensor belongs to one rank") {
  for (const auto& [ranks, strategy, size] : {std::tuple{3, comm::Strategy::kFullShard, 0},
                                              {3, comm::Strategy::kNoShard, 0},
                                              {4, comm::Strategy::kHybridShard, 2},
                                              {1, comm::Strategy::kFullShard, 0}}) {
    CAPTURE(ranks);
    std::map<std::string, std::vector<int>> owners;
    std::mutex mutex;
    comm::run_local_ranks(ranks, [&, strategy = strategy, size = size](comm::Communicator& world) {
      PlacedOptions options = test::checkpoint_options();
      options.fsdp.strategy = strategy;
      options.fsdp.shard_size = size;
      Session session = place_session(world, options);
      const std::lock_guard lock(mutex);
      for (const StatePartOwned& part : owned_state(session)) {
        CHECK(part.first % 64 == 0);
        std::vector<int>& of = owners[part.name];
        of.resize(static_cast<size_t>(Shape(part.shape).numel()));
        for (int64_t i = 0; i < part.values.numel(); ++i) {
          ++of[static_cast<size_t>(part.first + i)];
        }
      }
    });
    CHECK(owners.count("transformer.wte.weight") == 1);
    CHECK(owners.count("transformer.wte.weight/exp_avg_sq") == 1);
    CHECK(owners.at("transformer.wte.weight/step").size() == 1);
    for (const auto& [name, of] : owners) {
      CAPTURE(name);
      CHECK(of == std::vector<int>(of.size(), 1));
    }
  }
}

TEST_CASE("state hash: every bit, every place and every name counts") {
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    Session session = place_session(world, test::checkpoint_options());
    test::initialise_for_checkpoint(session);
    const StateHash before = hash_state(session);
    CHECK(hash_state(session) == before);
    const auto parts = owned_state(session);
    const auto part_named = [&](const std::string& name) {
      for (const StatePartOwned& part : parts) {
        if (part.name == name) return part;
      }
      fail("no {}", name);
    };
    const auto hash_with = [&](const std::string& name, const auto& change) {
      const StatePartOwned part = part_named(name);
      const auto old = part.values.to_host<float>();
      auto changed = old;
      change(changed);
      part.values.write(changed.data());
      const StateHash hash = hash_state(session);
      part.values.write(old.data());
      return hash;
    };
    const std::string table = "transformer.wte.weight";
    // The last bit of the last element, which ends a block that is not full.
    const StateHash bit =
        hash_with(table, [](std::vector<float>& v) { v.back() = std::nextafter(v.back(), 9.0F); });
    CHECK(bit.weights != before.weights);
    CHECK(bit.optimizer == before.optimizer);
    const auto swap = [](std::vector<float>& v) { std::swap(v[0], v[64]); };
    CHECK(hash_with(table, swap).weights != before.weights);
    // Two blocks that change places.
    CHECK(hash_with(table, [](std::vector<float>& v) {
            std::swap_ranges(v.begin(), v.begin() + 64, v.begin() + 64);
          }).weights != before.weights);
    const auto one = [](std::vector<float>& v) { v[0] = 1; };
    const StateHash first = hash_with(table + "/exp_avg", one);
    const StateHash second = hash_with(table + "/exp_avg_sq", one);
    CHECK(first.optimizer != before.optimizer);
    CHECK(first.optimizer != second.optimizer);
    CHECK(first.weights == before.weights);
    CHECK(hash_state(session) == before);
  });
}

TEST_CASE("state hash: of frozen parameters, whatever is trained") {
  const auto hash_with = [](uint64_t trained_seed, uint64_t frozen_seed, int ranks) {
    uint64_t hash = 0;
    comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
      PlacedOptions options = test::checkpoint_options();
      options.frozen = {"transformer.h.*"};
      Session session = place_session(world, options);
      session.initialise([&](const Parameter& p, int64_t first, Tensor& values) {
        models::from_scratch(p.trainable() ? trained_seed : frozen_seed)(p, first, values);
      });
      const uint64_t mine = hash_frozen(session);
      if (world.rank() == 0) hash = mine;
    });
    return hash;
  };
  CHECK(hash_with(1, 2, 1) == hash_with(3, 2, 3));
  CHECK(hash_with(1, 2, 1) != hash_with(1, 3, 1));
  CHECK(hash_with(1, 2, 2) != 0);
}

}  // namespace
}  // namespace fsdp::tools
