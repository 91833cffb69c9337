// Changes a text as JSON: whole strings, numbers, brackets and values move, so that what comes out
// is often JSON still. Bytes are changed too. A function of its arguments alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fsdp::fuzz {

std::string mutate_json(std::string_view text, uint64_t seed);

}  // namespace fsdp::fuzz
