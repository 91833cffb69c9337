// The side on which a tokenizer's folder wants short rows filled up. Read next: row_layout.h.
#pragma once

#include <optional>
#include <string>

#include "tools/data/objective.h"

namespace fsdp::data {

// padding_side of the tokenizer_config.json that belongs to the tokenizer; nullopt: it says none.
// `tokenizer`: as make_tokenizer takes it. Error for another value than left and right.
std::optional<PadSide> padding_side_of(const std::string& tokenizer);

}  // namespace fsdp::data
