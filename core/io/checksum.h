// A checksum of bytes: tells damaged or changed contents from the ones it was made of. It is no
// protection against somebody who wants two contents to look alike. Not here: what is stored of it
// and where (tools/data/token_cache.cpp).
#pragma once

#include <cstdint>
#include <string_view>

namespace fsdp {

// XXH3 of 64 bits, https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md: the same on
// every machine, about as fast as memory is read.
uint64_t checksum(std::string_view bytes);

// The bits of a number mixed so that sums of such numbers tell sets of them apart (the finaliser of
// MurmurHash3).
uint64_t mixed(uint64_t value);

}  // namespace fsdp
