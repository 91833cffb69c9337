// Memory of mapped files. What is read of a mapped file counts towards the memory of the process
// until the system takes it back, which it does late: a process that walks through a large file
// forgets what is behind it.
#pragma once

#include <cstddef>

#include "core/io/file.h"

namespace fsdp {

// After so many bytes, at the latest, a walk through a file forgets them.
inline constexpr size_t kForgetBytes = size_t{64} << 20;

// Pages that were read no longer count; they are read again, most of them from the system's cache,
// where somebody looks at them. Views of the file stay valid. Any thread.
void forget_pages(const MappedFile& file);

}  // namespace fsdp
