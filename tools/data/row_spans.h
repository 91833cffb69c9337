// Where the rows of a text are: its lines, the elements of a JSON array, or objects of JSON one
// behind another; the members of a JSON object. Not here: records of a table (table.h), what is in
// a row (text_source.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

namespace fsdp::data {

struct RowSpan {
  std::string_view text;
  int64_t line = 0;  // that it begins in, from 1
  size_t begin = 0;  // in the whole text, in bytes
};

// kValues: each from its bracket to the bracket that closes it, as indented objects are written.
enum class Spans : uint8_t { kLines, kElements, kValues };

// How the rows of a text of JSON lie, by its beginning: an array of objects, texts or arrays; an
// object that goes on behind its first line; lines, which may be arrays.
Spans spans_of(std::string_view text);

// Calls `use` with each line that is not blank, each element of an array, or each value. An element
// may be malformed in itself, such as one of too few brackets, which ends later. Error that names
// `file` and the line for an array or a value that does not end, and for what follows an array.
void for_each_span(std::string_view text, Spans spans, const std::string& file,
                   const std::function<void(const RowSpan&)>& use);

std::string_view without_blanks_behind(std::string_view text);

// The row at the beginning of this text, without the text that follows it.
std::string_view span_at(std::string_view text, Spans spans);

// The object that a text of rows begins with, also within an array; all the rest of the text where
// the object does not end. "": the text begins otherwise, or goes on behind the object as rows do
// not.
std::string_view first_object(std::string_view text);
// The name of the first member of the object at the beginning of this text, or of its first member
// that has one of these names, without looking behind it; "": there is none, or the object is
// malformed before it.
std::string_view first_member(std::string_view text,
                              std::initializer_list<std::string_view> names = {});

// The same of what lies within another span: `outer` is a span of the file, `use` gets spans of the
// file too. Error for text that is no array.
void for_each_element(const RowSpan& outer, const std::string& file,
                      const std::function<void(const RowSpan&)>& use);
// The value of each member of an object. Error for text that is no object; the values may be
// malformed in themselves.
void for_each_member(const RowSpan& object, const std::string& file,
                     const std::function<void(std::string_view name, const RowSpan& value)>& use);

}  // namespace fsdp::data
