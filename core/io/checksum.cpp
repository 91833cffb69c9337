// Contract: core/io/checksum.h. The library is compiled in: its header is all that is needed.
#include "core/io/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace fsdp {

uint64_t checksum(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

uint64_t mixed(uint64_t value) {
  value = (value ^ (value >> 33)) * 0xff51afd7ed558ccdULL;
  value = (value ^ (value >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return value ^ (value >> 33);
}

}  // namespace fsdp
