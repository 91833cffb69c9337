// One rank of a world of any size, without the others: for the training step that runs without
// bytes (kernels/meta). Collectives move nothing; calls and bytes are counted as everywhere.
// exchange() answers this rank's own text for every rank, so that ranks agree. What other ranks
// would choose differently the caller must know.
// Not here: what the collectives would take.
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace fsdp::comm {

// Rank `rank` of `ranks`.
std::unique_ptr<Communicator> make_meta_world(int ranks, int rank);

}  // namespace fsdp::comm
