// Contract: core/io/checksum.h. The library is compiled in: its header is all that is needed.
#include "core/io/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace fsdp {

uint64_t checksum(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace fsdp
