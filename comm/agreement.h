// Ranks that must do the same compare what they are about to do, or have done, and say where they
// part. Without it a rank that goes another way is noticed by those that wait for it, much later.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace fsdp::comm {

// Where the first rank that has other entries than rank 0 departs from them.
struct Difference {
  int rank;
  size_t index;
  std::string first, other;  // that entry of rank 0 and of `rank`
};
// Collective over `group`: compares a hash of `entries`, texts without a zero byte; the same on
// every rank.
std::optional<Difference> difference_between(Communicator& group,
                                             const std::vector<std::string>& entries);

// Throws the same Error on every rank when there is one, after it has aborted the job: ranks that
// are out of step would wait for each other in what they still have enqueued.
// `what`: "units", as in "the ranks have different units".
void check_same_on_all(Communicator& group, std::string_view what,
                       const std::vector<std::string>& entries);

// What the ranks have asked of these communicators so far, for check_same_on_all.
std::vector<std::string> order_of_calls(const std::vector<const Communicator*>& communicators);

}  // namespace fsdp::comm
