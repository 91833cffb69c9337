// The checks of tests/support/world_checks.h with ranks as threads.
#include <atomic>
#include <chrono>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/support/temp_folder.h"
#include "tests/support/world_checks.h"

using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

void on_every_size(void (*check)(Communicator&)) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    CAPTURE(ranks);
    run_local_ranks(ranks, [&](Communicator& world) { check(world); });
  }
}

}  // namespace

TEST_CASE("1, 2, 3, 4 and 8 ranks: delays on all streams give the same bits") {
  on_every_size(check_delays);
}
TEST_CASE("1, 2, 3, 4 and 8 ranks: collectives of a step") { on_every_size(check_collectives); }
TEST_CASE("1, 2, 3, 4 and 8 ranks: accumulation over micro-steps") {
  on_every_size(check_accumulation);
}
TEST_CASE("1, 2, 3, 4 and 8 ranks: overflow on one skips the step and halves the scale on all") {
  on_every_size(check_overflow_on_one_rank);
}
TEST_CASE("1, 2, 3, 4 and 8 ranks: norms of order 1, 2, 3 and infinity") {
  on_every_size(check_norms);
}
TEST_CASE("1, 2, 3, 4 and 8 ranks: several forwards before their backwards") {
  on_every_size(check_several_forwards);
}
TEST_CASE("1, 2, 3, 4 and 8 ranks: the order in which the host issues collectives") {
  on_every_size(check_issue_order);
}
TEST_CASE("1, 2, 3, 4 and 8 ranks: a step never makes the host wait for a stream") {
  on_every_size(check_host_runs_ahead);
}
TEST_CASE("1, 2, 3, 4 and 8 ranks: evaluations between steps") { on_every_size(check_evaluation); }
TEST_CASE("1, 2, 3, 4 and 8 ranks: frozen, tied and unused parameters") {
  on_every_size(check_frozen_and_unused);
}
TEST_CASE("1, 2, 3, 4 and 8 ranks: an exception, then a right step") {
  on_every_size(check_exception);
}
TEST_CASE("2, 3, 4 and 8 ranks: one that runs its blocks in another order, and all are told") {
  for (const int ranks : {2, 3, 4, 8}) {
    CAPTURE(ranks);
    std::atomic<int> told = 0;
    error_of([&] {
      run_local_ranks(ranks,
                      [&](Communicator& world) {
                        check_order_divergence(world);
                        ++told;
                      },
                      {.timeout = std::chrono::seconds(20)});
    });
    CHECK(told == ranks);
  }
}
