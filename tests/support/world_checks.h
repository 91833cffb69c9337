// What sharded training must hold to on a world of any size and transport: the tests with ranks as
// threads (tests/comm/fsdp/world_sizes_test.cpp) and as processes (tests/mpi) run the same checks.
#pragma once

#include "comm/communicator.h"

namespace fsdp::test {

// Every rank of the world calls each; shapes and shares divide by nothing.
void check_delays(comm::Communicator& world);        // on all streams: the same bits
void check_collectives(comm::Communicator& world);   // of a step: calls and bytes
void check_accumulation(comm::Communicator& world);  // of micro-steps, every way
// The step moves nothing on any rank, and the loss scale halves on all.
void check_overflow_on_one_rank(comm::Communicator& world);
void check_norms(comm::Communicator& world);             // of order 1, 2, 3 and infinity
void check_several_forwards(comm::Communicator& world);  // before their backwards
void check_issue_order(comm::Communicator& world);       // of gathers and reductions, by the host
void check_host_runs_ahead(comm::Communicator& world);   // a step never waits for a stream
void check_evaluation(comm::Communicator& world);        // between steps: no bit of training
void check_frozen_and_unused(comm::Communicator& world);
void check_exception(comm::Communicator& world);  // thrown on all ranks, then a right step
// One rank runs its blocks in another order: all get the error. The world is of no use after it.
void check_order_divergence(comm::Communicator& world);

}  // namespace fsdp::test
