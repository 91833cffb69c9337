// Hashes of units: the same however the gradients are sharded, another for one bit, without effect
// on the training; and their file, which may be cut anywhere. In runs, and where a difference
// began: tests/tools/run, tests/e2e/replay.sh.
#include "tools/checkpoint/unit_hashes.h"

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "tests/support/checkpoint_run.h"

namespace fsdp::tools {
namespace {

using Names = std::vector<std::string>;

// The hashes of two steps on two ranks, and the state after them.
struct HashedRun {
  Names units;
  std::vector<std::vector<UnitHash>> steps;
  StateHash state;
};
HashedRun hashed_run(const PlacedOptions& options) {
  HashedRun out;
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    Session session = place_session(world, options);
    test::initialise_for_checkpoint(session);
    UnitHasher hasher(session);
    std::vector<std::vector<UnitHash>> steps;
    for (uint32_t step = 0; step < 2; ++step) {
      session.forward_backward(test::checkpoint_batch(world, step, 8), step, true);
      steps.push_back(hasher.hash());
      session.update(1e-2).read();
    }
    const StateHash state = hash_state(session);
    if (world.rank() == 0) out = {hasher.units(), steps, state};
  });
  return out;
}

// Of two ranks: the sum of two gradients has the same bits in either order.
TEST_CASE("unit hashes: of equal gradients they are equal, however these are sharded or kept") {
  const test::TempFolder folder;
  for (const int micro_steps : {1, 2}) {
    PlacedOptions options = test::checkpoint_options();
    options.fsdp.micro_steps = micro_steps;
    const HashedRun expected = hashed_run(options);
    CHECK(expected.units == Names{"blocks.1", "blocks.0", "root"});
    CHECK(expected.steps[0] != expected.steps[1]);
    const auto check_like = [&](const PlacedOptions& other) {
      const HashedRun got = hashed_run(other);
      CHECK(got.units == expected.units);
      CHECK(got.steps == expected.steps);
      CHECK(got.state == expected.state);
    };
    for (const comm::Strategy strategy : {comm::Strategy::kShardGradOp, comm::Strategy::kNoShard}) {
      options.fsdp.strategy = strategy;
      check_like(options);
    }
    options = test::checkpoint_options();
    options.fsdp.micro_steps = micro_steps;
    options.backend.offload_folder = folder.path().string();
    for (const comm::Offload offload : {comm::Offload::kAll, comm::Offload::kNvme}) {
      options.fsdp.offload = offload;
      check_like(options);
    }
  }
}

TEST_CASE("unit hashes: reading the gradients changes no bit of the training") {
  const HashedRun hashed = hashed_run(test::checkpoint_options());
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    Session session = place_session(world, test::checkpoint_options());
    test::initialise_for_checkpoint(session);
    for (uint32_t step = 0; step < 2; ++step) {
      session.train_step(test::checkpoint_batch(world, step, 8), 1e-2, step).read();
    }
    CHECK(hash_state(session) == hashed.state);
  });
}

TEST_CASE("unit hashes: one bit counts, for the unit that has it alone") {
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    Session session = place_session(world, test::checkpoint_options());
    test::initialise_for_checkpoint(session);
    UnitHasher hasher(session);
    session.forward_backward(test::checkpoint_batch(world, 0, 8), 0, true);
    const std::vector<UnitHash> before = hasher.hash();
    CHECK(hasher.hash() == before);
    const OwnedUnit middle = owned_units(session)[1];
    CHECK(middle.name == "blocks.0");
    const auto flip = [&](const StatePartOwned& part) {
      std::vector<float> values = part.values.to_host<float>();
      values.back() = std::nextafter(values.back(), 9.0F);
      if (world.rank() == 1) part.values.write(values.data());
    };
    flip(middle.gradients.back());
    std::vector<UnitHash> after = hasher.hash();
    CHECK(after[1].gradient != before[1].gradient);
    CHECK(after[1].weights == before[1].weights);
    flip(middle.weights.back());
    after = hasher.hash();
    CHECK(after[1].weights != before[1].weights);
    CHECK(after[0] == before[0]);
    CHECK(after[2] == before[2]);
    session.restart_step();
  });
}

TEST_CASE("unit hashes: of what is trained alone") {
  PlacedOptions options = test::checkpoint_options();
  options.frozen = {"transformer.h.0.*"};
  CHECK(hashed_run(options).units == Names{"blocks.1", "root"});
}

// Two steps by a log, then one more by a second.
TEST_CASE("unit hashes: the file goes on, and a run that goes on cuts it") {
  const test::TempFolder folder;
  const auto note = [&](const PlacedOptions& options, const std::vector<int64_t>& steps) {
    comm::run_local_ranks(2, [&](comm::Communicator& world) {
      Session session = place_session(world, options);
      test::initialise_for_checkpoint(session);
      UnitHashLog log(session, folder.path());
      for (const int64_t step : steps) {
        session.forward_backward(test::checkpoint_batch(world, step, 8), 0, true);
        log.note(step);
        session.restart_step();
      }
      CHECK(log.sync() == "");
      world.barrier();
    });
  };
  const auto steps_of = [&](int64_t first, int64_t last) {
    std::vector<int64_t> out;
    for (const auto& [step, hashes] : read_unit_hashes(folder.path(), first, last).steps) {
      CHECK(hashes.size() == 3);
      out.push_back(step);
    }
    return out;
  };
  const std::filesystem::path file = folder / "unit_hashes.bin";
  const PlacedOptions options = test::checkpoint_options();
  CHECK(read_unit_hashes(folder.path(), 1, 9).units.empty());
  note(options, {1, 2});
  note(options, {3});
  CHECK(steps_of(1, 9) == std::vector<int64_t>{1, 2, 3});
  CHECK(steps_of(2, 2) == std::vector<int64_t>{2});
  const UnitHashes before = read_unit_hashes(folder.path(), 1, 9);
  CHECK(before.units == Names{"blocks.1", "blocks.0", "root"});
  const std::string whole = read_file(file);
  // Killed in the middle of a record; goes on at step 1, from there or in another directory.
  write_file_atomically(file, whole.substr(0, whole.size() - 1));
  CHECK(steps_of(1, 9) == std::vector<int64_t>{1, 2});
  const test::TempFolder branch;
  keep_unit_hashes(branch.path(), folder.path(), 2);
  CHECK(read_unit_hashes(branch.path(), 1, 9).steps.size() == 2);
  keep_unit_hashes(folder.path(), folder.path(), 1);
  CHECK(steps_of(1, 9) == std::vector<int64_t>{1});
  note(options, {2});
  CHECK(read_unit_hashes(folder.path(), 2, 2).steps == read_unit_hashes(branch.path(), 2, 2).steps);
  // A step that was done twice.
  note(options, {7, 2});
  CHECK(steps_of(1, 9) == std::vector<int64_t>{1, 2, 7});
  // Other units, a head that was cut, no file in the run before.
  PlacedOptions frozen = options;
  frozen.frozen = {"transformer.h.0.*"};
  note(frozen, {4});
  CHECK(read_unit_hashes(folder.path(), 1, 9).units == Names{"blocks.1", "root"});
  write_file_atomically(file, "{\"version\":1,\"un");
  CHECK(read_unit_hashes(folder.path(), 1, 9).units.empty());
  note(options, {5});
  CHECK(steps_of(1, 9) == std::vector<int64_t>{5});
  const test::TempFolder none;
  keep_unit_hashes(folder.path(), none.path(), 9);
  CHECK(!std::filesystem::exists(file));
}

}  // namespace
}  // namespace fsdp::tools
