// Predicted times for people: three digits, because a prediction has no more.
#pragma once

#include <string>

namespace fsdp::tools {

// "9.68 s", "12.3 ms", "845 us"; "0 s".
std::string duration_text(double seconds);

}  // namespace fsdp::tools
