// Characters as Python's str treats them, for chat templates: white space, case, splitting, repr.
// Texts are valid UTF-8. Not here: values (value.h), filters and methods that use this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::data::jinja {

// str.isspace() of one character, which \s of Python's re takes, too.
bool is_python_space(char32_t character);
// The byte at which character `index` begins; text.size() from the end on.
size_t byte_of(std::string_view text, size_t index);

enum class Side : uint8_t { kBoth, kLeft, kRight };
// strip(), lstrip(), rstrip(): a view of `text`. Without `characters` white space is removed.
std::string_view strip(std::string_view text, Side side = Side::kBoth,
                       std::optional<std::string_view> characters = std::nullopt);
// split(): views of `text`; most < 0: everywhere. `separator` is not empty; without one at runs of
// white space.
std::vector<std::string_view> split(std::string_view text,
                                    std::optional<std::string_view> separator, int64_t most);
// splitlines(), without the line ends.
std::vector<std::string_view> split_lines(std::string_view text);
// replace(); most < 0: all. An empty `old` is found before each character and at the end. Stops
// when the result has more than `most_bytes`.
std::string replace(std::string_view text, std::string_view old, std::string_view replacement,
                    int64_t most, size_t most_bytes);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);  // str.capitalize()
std::string title(std::string_view text);       // str.title(): a word is a run of cased characters
std::string title_words(
    std::string_view text);  // jinja2's filter: words are split at -({[< and blanks

// repr() of a text: quoted, and escaped where Python finds a character not printable.
void append_repr(std::string& out, std::string_view text);
// repr() of a float: the shortest digits that read back.
void append_repr(std::string& out, double number);
// markupsafe.escape().
std::string escape_html(std::string_view text);

}  // namespace fsdp::data::jinja
