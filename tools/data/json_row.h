// A row of JSON as a value. Python writes NaN, Infinity and -Infinity, which are no JSON, where a
// number is missing or too large: a row of data may have them, in fields that are not read. Not
// here: where a row begins and ends (row_spans.h), what text it becomes (row_template.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/io/json.h"

namespace fsdp::data {

// As parse_json_line(), but each of these three words is the number that it names. kSpelled: each
// other number that is no integer of 64 bits is the text that spells it, "1.50" or "1e5".
enum class Numbers : uint8_t { kValues, kSpelled };
Json parse_json_row(std::string_view text, const std::string& where,
                    Numbers numbers = Numbers::kValues);

}  // namespace fsdp::data
