// Contract: core/io/forget_pages.h.
#include "core/io/forget_pages.h"

#include <sys/mman.h>

namespace fsdp {

// Of a file and read-only: there is nothing of the process's own in these pages.
void forget_pages(const MappedFile& file) {
  if (file.size() == 0) return;
  ::madvise(const_cast<std::byte*>(file.data()), file.size(), MADV_DONTNEED);
}

}  // namespace fsdp
