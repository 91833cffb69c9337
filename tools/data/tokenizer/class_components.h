// What the class of a tokenizer changes in the components of its tokenizer.json: the prefix of a
// pre-tokenizer, and those that LlamaTokenizer makes anew. When it does: class_rules.h. Each
// returns what is other now, as text; "": nothing.
#pragma once

#include <string>

#include "core/io/json.h"

namespace fsdp::data {

// add_prefix_space of the pre-tokenizer ByteLevel; `nested`: also within a Sequence.
std::string set_prefix_space(Json& tokenizer, bool value, bool nested);
// Normalizer, pre-tokenizer and decoder as the converter of a tokenizer.model makes them.
std::string convert_components(Json& tokenizer, bool prefix, bool legacy);

}  // namespace fsdp::data
