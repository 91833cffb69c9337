// A number with its noun, for messages.
#pragma once

#include <cstdint>
#include <string>

namespace fsdp {

// "1 rank", "2 ranks", "2 passes".
std::string counted(int64_t number, const std::string& noun);

}  // namespace fsdp
