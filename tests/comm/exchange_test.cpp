// What ranks tell each other arrives as it was, by rank.
#include "comm/exchange.h"

#include <limits>

#include <doctest/doctest.h>

#include "comm/local_transport.h"

namespace fsdp::comm {
namespace {

struct Memory {
  size_t peak = 0;
  double share = 0;
};

TEST_CASE("values and lists of them: every bit, by rank") {
  run_local_ranks(3, [](Communicator& world) {
    const int rank = world.rank();
    CHECK(exchange_values(world, int64_t{1} << (40 + rank)) ==
          std::vector<int64_t>{int64_t{1} << 40, int64_t{1} << 41, int64_t{1} << 42});
    const auto memory = exchange_values(
        world, Memory{static_cast<size_t>(rank), std::numeric_limits<double>::infinity()});
    REQUIRE(memory.size() == 3);
    CHECK(memory[2].peak == 2);
    CHECK(memory[1].share == std::numeric_limits<double>::infinity());
    const std::vector<int32_t> mine(static_cast<size_t>(rank), 10 + rank);
    CHECK(exchange_lists(world, mine) == std::vector<std::vector<int32_t>>{{}, {11}, {12, 12}});
  });
}

TEST_CASE("texts: empty ones, with line ends and zero bytes, and no texts at all") {
  run_local_ranks(3, [](Communicator& world) {
    const std::vector<std::vector<std::string>> all = {
        {"a b", "", "line\nline"}, {}, {std::string("zero\0byte", 9)}};
    CHECK(exchange_texts(world, all[static_cast<size_t>(world.rank())]) == all);
  });
}

TEST_CASE("the first to say something, or nobody") {
  run_local_ranks(4, [](Communicator& world) {
    CHECK_FALSE(first_to_say(world, ""));
    const auto said =
        first_to_say(world, world.rank() >= 2 ? fmt::format("{}!", world.rank()) : "");
    REQUIRE(said);
    CHECK(said->rank == 2);
    CHECK(said->text == "2!");
  });
}

}  // namespace
}  // namespace fsdp::comm
