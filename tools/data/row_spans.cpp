// Brackets are counted outside of strings; everything else is the JSON parser's to judge.
#include "tools/data/row_spans.h"

#include <algorithm>

#include "core/error.h"

namespace fsdp::data {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

// The end of the first element: its comma or the bracket of what it is in; the text's end without
// these.
size_t end_of_element(std::string_view text, char bracket = ']') {
  int64_t depth = 0;
  bool inside_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (inside_string) {
      if (c == '\\') ++i;
      if (c == '"') inside_string = false;
    } else if (c == '"') {
      inside_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (depth == 0 && (c == ',' || c == bracket)) {
      return i;
    } else if (c == '}' || c == ']') {
      depth = std::max<int64_t>(depth - 1, 0);
    }
  }
  return text.size();
}

std::string_view without_blanks_behind(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kBlank) + 1);
}

void for_each_line(std::string_view text, const std::function<void(const RowSpan&)>& use) {
  int64_t line = 0;
  for (size_t begin = 0; begin < text.size();) {
    ++line;
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view row = text.substr(begin, end - begin);
    if (row.find_first_not_of(kBlank) != std::string_view::npos) use({row, line, begin});
    begin = end + 1;
  }
}

// Moves through a text and knows the line.
class Place {
 public:
  explicit Place(std::string_view text, int64_t line = 1) : text_(text), line_(line) {}
  void go_to(size_t at) {
    at = std::min(at, text_.size());
    line_ += std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                        text_.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    at_ = at;
  }
  void skip_blanks() { go_to(text_.find_first_not_of(kBlank, at_)); }
  bool ends() const { return at_ == text_.size(); }
  size_t at() const { return at_; }
  int64_t line() const { return line_; }
  std::string_view rest() const { return text_.substr(at_); }

 private:
  std::string_view text_;
  size_t at_ = 0;
  int64_t line_;
};

// The elements of the array that `text` begins with; returns where the array is left.
Place elements_of(const RowSpan& outer, const std::string& file,
                  const std::function<void(const RowSpan&)>& use) {
  const std::string_view text = outer.text;
  Place place(text, outer.line);
  place.go_to(text.find('[') + 1);
  place.skip_blanks();
  bool ended = place.rest().starts_with(']');  // an array without elements
  while (!ended) {
    const std::string_view rest = place.rest();
    const size_t end = end_of_element(rest);
    FSDP_CHECK(end < rest.size(), "{}:{}: malformed JSON: the array does not end", file,
               place.line());
    use({without_blanks_behind(rest.substr(0, end)), place.line(), outer.begin + place.at()});
    ended = rest[end] == ']';
    if (ended) {
      place.go_to(place.at() + end);
    } else {
      place.go_to(place.at() + end + 1);
      place.skip_blanks();
    }
  }
  place.go_to(place.at() + 1);
  place.skip_blanks();
  return place;
}

// What stands between the members of an object, up to the next name or the end.
bool goes_on(Place& place, char after_first, const std::string& file) {
  place.skip_blanks();
  if (place.rest().starts_with('}')) return false;
  if (after_first == ',') {
    FSDP_CHECK(place.rest().starts_with(','), "{}:{}: malformed JSON: the object does not end",
               file, place.line());
    place.go_to(place.at() + 1);
    place.skip_blanks();
  }
  return true;
}

}  // namespace

bool is_array(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlank);
  return first != std::string_view::npos && text[first] == '[';
}

void for_each_span(std::string_view text, bool array, const std::string& file,
                   const std::function<void(const RowSpan&)>& use) {
  if (!array) return for_each_line(text, use);
  const Place place = elements_of({text, 1, 0}, file, use);
  FSDP_CHECK(place.ends(), "{}:{}: malformed JSON: text behind the end of the array", file,
             place.line());
}

void for_each_element(const RowSpan& outer, const std::string& file,
                      const std::function<void(const RowSpan&)>& use) {
  FSDP_CHECK(is_array(outer.text), "{}:{}: expected an array", file, outer.line);
  elements_of(outer, file, use);
}

void for_each_member(const RowSpan& object, const std::string& file,
                     const std::function<void(std::string_view, const RowSpan&)>& use) {
  Place place(object.text, object.line);
  place.skip_blanks();
  FSDP_CHECK(place.rest().starts_with('{'), "{}:{}: expected an object", file, place.line());
  place.go_to(place.at() + 1);
  for (char between = 0; goes_on(place, between, file); between = ',') {
    const std::string_view rest = place.rest();
    const size_t end = rest.starts_with('"') ? rest.find('"', 1) : rest.npos;
    FSDP_CHECK(end != rest.npos, "{}:{}: malformed JSON: expected the name of a member", file,
               place.line());
    const std::string_view name = rest.substr(1, end - 1);
    place.go_to(place.at() + end + 1);
    place.skip_blanks();
    FSDP_CHECK(place.rest().starts_with(':'), "{}:{}: malformed JSON: expected : after \"{}\"",
               file, place.line(), name);
    place.go_to(place.at() + 1);
    place.skip_blanks();
    const size_t length = end_of_element(place.rest(), '}');
    FSDP_CHECK(length < place.rest().size(), "{}:{}: malformed JSON: the object does not end", file,
               place.line());
    use(name, {without_blanks_behind(place.rest().substr(0, length)), place.line(),
               object.begin + place.at()});
    place.go_to(place.at() + length);
  }
}

std::string_view span_at(std::string_view text, bool array) {
  return without_blanks_behind(text.substr(0, array ? end_of_element(text) : text.find('\n')));
}

}  // namespace fsdp::data
