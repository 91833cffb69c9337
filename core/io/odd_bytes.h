// Texts that are no UTF-8, such as the name of a folder of an older system, in JSON and YAML, which
// are UTF-8. A byte that is no UTF-8 is written as \udcXX, half of a pair of surrogates, as Python
// writes names of files. So a file that holds such a name is valid, and the name is read back as it
// was. Between text and values such a byte has a stand-in: the noncharacter U+FDD0, then U+01XX.
// Not here: text that is read by a model (tools/data/tokenizer/utf8.h).
#pragma once

#include <string>
#include <string_view>

namespace fsdp {

bool is_utf8(std::string_view text);
// Stand-ins for what is no UTF-8, and back.
std::string with_stand_ins(std::string_view text);
std::string without_stand_ins(std::string_view text);
// Of the text of JSON or YAML: escapes for stand-ins, and back.
std::string stand_ins_as_escapes(std::string_view json);
std::string escapes_as_stand_ins(std::string_view json);
// Where the escapes of stand-ins were none, as in a text of YAML without quotes: what was written.
std::string escapes_as_written(std::string text);
// Whether escapes_as_stand_ins() may change this text.
inline bool may_have_odd_bytes(std::string_view json) {
  return json.find("\\udc") != json.npos || json.find("\\uDC") != json.npos;
}

}  // namespace fsdp
