// Work on all cores. Its parts must not need each other.
#pragma once

#include <cstddef>
#include <functional>

namespace fsdp::tools {

// Calls work(i) for all i below `count`, each once, in any order. What one throws ends the program.
void for_each_index(size_t count, const std::function<void(size_t)>& work);

}  // namespace fsdp::tools
