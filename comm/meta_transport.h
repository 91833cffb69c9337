// One rank of a world of any size, without the others: for the training step that runs without
// bytes (kernels/meta). Collectives move nothing; calls and bytes are counted as everywhere.
// exchange() answers this rank's own text for every rank, so that ranks agree. What other ranks
// would choose differently the caller must know.
// Not here: what the collectives would take (tools/predict/call_rates.h).
#pragma once

#include <functional>
#include <memory>

#include "comm/communicator.h"

namespace fsdp::comm {

struct MetaCollective {
  Collective kind;
  int64_t bytes = 0;                // of the full buffer
  const std::vector<int>& members;  // of the group, as ranks of the job
};
// Puts something on the stream in the place of the collective.
using PutCollective = std::function<void(Stream& stream, const MetaCollective& collective)>;

// Rank `rank` of `ranks`. Without `put` a collective is a host task that does nothing.
std::unique_ptr<Communicator> make_meta_world(int ranks, int rank, PutCollective put = {});

}  // namespace fsdp::comm
