// Ranks that are out of step: each is told, with the first entry in which they part.
#include "comm/agreement.h"

#include <chrono>
#include <set>

#include <doctest/doctest.h>

#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

// What every rank learns from check_same_on_all when it has these entries.
std::vector<std::string> learned(const std::vector<std::vector<std::string>>& entries) {
  std::vector<std::string> messages(entries.size());
  error_of([&] {
    run_local_ranks(static_cast<int>(entries.size()), [&](Communicator& world) {
      const auto rank = static_cast<size_t>(world.rank());
      messages[rank] = error_of([&] { check_same_on_all(world, "plans", entries[rank]); });
    });
  });
  return messages;
}

// The error of a training step on two ranks, of which rank 1 has another module, or other calls.
std::string error_of_step(const std::function<Subject(Backend&, DType, bool other)>& subject) {
  return error_of([&] {
    run_local_ranks(2,
                    [&](Communicator& world) {
                      RunSpec spec;
                      spec.subject = [&](Backend& backend, DType dtype) {
                        return subject(backend, dtype, world.rank() == 1);
                      };
                      RankRun run(world, spec);
                      run.step(0);
                      run.wait();
                    },
                    {.timeout = std::chrono::seconds(20)});
  });
}

}  // namespace

TEST_CASE("entries that differ: all ranks get one message, with the first difference") {
  using Entries = std::vector<std::string>;
  CHECK(learned({{"a", "b"}, {"a", "b"}, {"a", "b"}}) == Entries{"", "", ""});
  const std::string changed =
      "the ranks have different plans; the first difference is entry 1: rank 2: x; rank 0: b";
  for (const std::string& message : learned({{"a", "b", "c"}, {"a", "b", "c"}, {"a", "x", "y"}})) {
    CHECK(contains(message, changed));
  }
  const std::string of_lines = "entry 1: rank 1: one\nthree; rank 0: one\ntwo";
  for (const std::string& message : learned({{"a", "one\ntwo"}, {"a", "one\nthree"}})) {
    CHECK(contains(message, of_lines));
  }
  const std::string shorter =
      "the ranks have different plans; the first difference is entry 1: rank 1: nothing more; "
      "rank 0: b";
  for (const std::string& message : learned({{"a", "b"}, {"a"}})) CHECK(contains(message, shorter));
}

TEST_CASE("a rank with another model: refused before any memory is asked for") {
  const std::string message = error_of_step([](Backend& backend, DType dtype, bool other) {
    models::ModelConfig config = small_gpt2();
    if (other) config.ffn += 1;
    return causal_lm(config)(backend, dtype);
  });
  CAPTURE(message);
  CHECK(contains(message, "the ranks have different units"));
  CHECK(contains(message, "rank 1: unit "));
  CHECK(contains(message, "; rank 0: unit "));
}

TEST_CASE("a rank that runs its blocks in another order: found in the first step, units named") {
  const std::string message = error_of_step([](Backend& backend, DType dtype, bool other) {
    const auto order = [other](const Pass&) {
      return other ? std::vector<int>{0, 2, 1} : std::vector<int>{0, 1, 2};
    };
    return block_list(small_gpt2(), order)(backend, dtype);
  });
  CAPTURE(message);
  // The collective itself may notice first; either way both units are named.
  CHECK(contains(message, "unit blocks.1"));
  CHECK(contains(message, "unit blocks.2"));
  CHECK(contains(message, "rank 0"));
  CHECK(contains(message, "rank 1"));
}

TEST_CASE("a rank that leaves a block out does not hang the others") {
  const auto begin = std::chrono::steady_clock::now();
  const std::string message = error_of_step([](Backend& backend, DType dtype, bool other) {
    const auto order = [other](const Pass&) {
      return other ? std::vector<int>{0, 1} : std::vector<int>{0, 1, 2};
    };
    return block_list(small_gpt2(), order)(backend, dtype);
  });
  CAPTURE(message);
  CHECK(message != "");
  CHECK(contains(message, "unit "));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));  // not the timeout
}
