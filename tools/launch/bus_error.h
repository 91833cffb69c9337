// A mapped file (a cache of tokens, weights) that is cut while it is read, or a disk that fails
// under it, is SIGBUS: without this a process dies without a word. Not here: files that are read by
// calls, where the same is an Error (core/io/file.h).
#pragma once

#include <string>

namespace fsdp::tools {

// From now on such a signal prints "fsdp: FILE: ..." and ends the process with status 1.
void name_bus_errors();

// ---- for tests ----
// The path of the file that is mapped at the address, from the text of /proc/self/maps; "": none.
std::string mapped_file(const std::string& maps, unsigned long address);

}  // namespace fsdp::tools
