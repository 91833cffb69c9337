// Work on all cores. Its parts must not need each other.
#pragma once

#include <cstddef>
#include <functional>

namespace fsdp::tools {

// Calls work(i) for all i below `count`, each once, in any order, on so many threads (0: one for
// each core). After the first that throws no new ones begin, and what it threw is thrown here.
void for_each_index(size_t count, const std::function<void(size_t)>& work, size_t threads = 0);

}  // namespace fsdp::tools
