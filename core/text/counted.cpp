// Contract: core/text/counted.h.
#include "core/text/counted.h"

namespace fsdp {

std::string counted(int64_t number, const std::string& noun) {
  const char* const many = noun.ends_with('s') ? "es" : "s";
  return std::to_string(number) + " " + noun + (number == 1 ? "" : many);
}

}  // namespace fsdp
