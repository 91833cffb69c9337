// What a file of JSON or a table holds where its rows are not found: the form that it looks like,
// and the option or the command that reads it. Not here: reading (text_source.h), other kinds of
// files (core/io/file_kind.h).
#pragma once

#include <string>
#include <string_view>

#include "tools/data/text_format.h"

namespace fsdp::data {

// Of a file with a row that is bad; "": nothing. `text`: all of it, without its byte order mark.
// `has_template`: the names of the fields are the user's.
std::string hint_of_rows(std::string_view text, const std::string& file, TextFormat format,
                         bool has_template);

// Of a file of JSON that is one object, of two columns or more: the command that makes rows of
// them; "": it is no such file. A row of lists looks the same, where it is the only one.
std::string hint_of_columns(std::string_view text, const std::string& file);

}  // namespace fsdp::data
