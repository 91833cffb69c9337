// Ranks that must do the same compare what they are about to do, or have done, and say where they
// part. Without it a rank that goes another way is noticed by those that wait for it, much later.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"

namespace fsdp::comm {

// Collective over `group`: compares a hash of `entries`. Where it differs, throws the same Error on
// every rank, with the first entry in which each side differs from the other, after it has aborted
// the job: ranks that are out of step would wait for each other in what they still have enqueued.
// `what`: "units", as in "the ranks have different units".
void check_same_on_all(Communicator& group, std::string_view what,
                       const std::vector<std::string>& entries);

// What the ranks have asked of these communicators so far, for check_same_on_all.
std::vector<std::string> order_of_calls(const std::vector<const Communicator*>& communicators);

}  // namespace fsdp::comm
