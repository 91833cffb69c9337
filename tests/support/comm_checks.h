// What every transport must do, checked the same way for ranks as threads (tests/comm) and ranks as
// processes (tests/mpi). Each function is collective: all ranks of `group` call it.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"
#include "kernels/cpu/cpu_backend.h"

namespace fsdp::test {

enum class Memory : uint8_t { kPlain, kFromCommunicator };

// One rank's backend with two streams for collectives. Every task of those is delayed by a
// pseudo-random time that depends on the rank, so that no order holds by accident.
struct CommRank {
  explicit CommRank(int rank, int longest_delay_us = 0);
  explicit CommRank(std::unique_ptr<Backend> any);
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Stream> first;
  std::unique_ptr<Stream> second;
};

// The stream of a collective starts after what the host wrote, and what the host reads waits for
// it.
void after_compute(CommRank& rank, Stream& stream);
void before_compute(CommRank& rank, const EventPtr& event);
// Zeros that are there when the call returns, so that any stream may use them.
Tensor finished_zeros(CommRank& rank, int64_t numel);

struct CommTensor {
  std::shared_ptr<comm::CommBuffer> memory;  // null when plain
  Tensor tensor;
};
CommTensor comm_tensor(comm::Communicator& group, Backend& backend, int64_t numel, DType dtype,
                       Memory memory);

// All collectives, every op, against scalar loops, bit for bit; slots of `slot` elements.
void check_collectives(comm::Communicator& group, CommRank& rank, DType dtype, int64_t slot,
                       Memory memory);
// The above for all dtypes and a list of ugly sizes.
void check_dtypes_and_sizes(comm::Communicator& group, Memory memory);
// Sums of values of very different size, several times: the same bits on every rank and run.
void check_same_bits(comm::Communicator& group, Memory memory);
// Two communicators on two streams at once, issued in different orders on different ranks.
void check_two_streams(comm::Communicator& group, Memory memory);
// One communicator on two streams: collectives still run in the order of issue.
void check_one_communicator_on_two_streams(comm::Communicator& group);
void check_exchange_and_split(comm::Communicator& group);
void check_counts_and_ledger(comm::Communicator& group);
// Ranks that call different collectives get an Error that says so. The group is unusable after.
void check_mismatch(comm::Communicator& group);
// PyTorch FSDP2's reduction of known gradients (tests/fixtures/fsdp/reduce) for this world size.
void check_reference_reduction(comm::Communicator& group, Memory memory);

}  // namespace fsdp::test
