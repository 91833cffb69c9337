// JSON whose numbers are kept as they are written: 1.50 is no other text than 1.5, and a whole
// number of more than 64 bits no rounded one. Not here: all other JSON (json.h), rows (tools/data).
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "core/io/json.h"

namespace fsdp {

// What becomes of a number that is no integer of 64 bits.
using UseSpelling = std::function<Json(const std::string& spelling)>;
// As parse_json_line() otherwise, but keys keep their order.
Json parse_spelled_line(std::string_view line, const std::string& where, const UseSpelling& use);

}  // namespace fsdp
