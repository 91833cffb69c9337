// Brackets are counted outside of strings; everything else is the JSON parser's to judge.
#include "tools/data/row_spans.h"

#include <algorithm>

#include "core/error.h"

namespace fsdp::data {
namespace {

constexpr std::string_view kBlank = " \t\r\n";
constexpr size_t kLongestRow = size_t{64} << 20;  // more is no row, but all rows within a value

// Where `stops` is true first, of the characters that are not within a string; the text's end
// without one.
template <typename Stops>
size_t find_outside_strings(std::string_view text, Stops&& stops) {
  bool inside_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (inside_string) {
      if (c == '\\') ++i;
      if (c == '"') inside_string = false;
    } else if (c == '"') {
      inside_string = true;
    } else if (stops(c)) {
      return i;
    }
  }
  return text.size();
}

// The end of the first element: its comma or the bracket of what it is in; the text's end without
// these.
size_t end_of_element(std::string_view text, char bracket = ']') {
  int64_t depth = 0;
  return find_outside_strings(text, [&](char c) {
    if (depth == 0 && (c == ',' || c == bracket)) return true;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') depth = std::max<int64_t>(depth - 1, 0);
    return false;
  });
}

// The end of the first value: behind the bracket that closes its first one, or else its line's end;
// npos: it does not end.
size_t end_of_value(std::string_view text) {
  int64_t depth = 0;
  const size_t end = find_outside_strings(text, [&](char c) {
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') return --depth <= 0;
    return c == '\n' && depth == 0;
  });
  if (end == text.size()) return depth == 0 ? end : text.npos;
  return text[end] == '\n' ? end : end + 1;
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

// Objects one behind another, with nothing or blanks between them.
void for_each_value(std::string_view text, const std::string& file,
                    const std::function<void(const RowSpan&)>& use) {
  Place place(text);
  for (place.skip_blanks(); !place.ends(); place.skip_blanks()) {
    const std::string_view rest = place.rest().substr(0, kLongestRow);
    const size_t length = end_of_value(rest);
    FSDP_CHECK(length != text.npos, "{}:{}: {}", file, place.line(),
               rest.size() < kLongestRow
                   ? "malformed JSON: the object does not end"
                   : "an object of more than 64 MiB: expected rows, one a line or in an array");
    use({rest.substr(0, length), place.line(), place.at()});
    place.go_to(place.at() + length);
  }
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

// Of an indented object the first line is short; another member, or what a bracket opened, follows.
bool goes_on_behind_line(std::string_view text) {
  constexpr size_t kLongest = 4096;
  const std::string_view line =
      without_blanks_behind(text.substr(0, std::min(text.find('\n'), kLongest)));
  const size_t next = text.find_first_not_of(kBlank, line.size());
  if (!line.starts_with('{') || line.size() == kLongest || next == text.npos) return false;
  const char last = line.back();
  if (last != '[' && ((last != '{' && last != ',') || text[next] == '{')) return false;
  bool inside_string = false;  // where a line is cut
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') inside_string = !inside_string;
    if (inside_string && line[i] == '\\') ++i;
  }
  return !inside_string && end_of_value(line) == line.npos;
}

// Lines that are arrays each: the first one ends with its line.
bool another_array_follows(std::string_view text) {
  const size_t end = text.substr(0, kLongestRow).find('\n');
  if (end == text.npos) return false;
  const std::string_view line = without_blanks_behind(text.substr(0, end));
  const size_t next = text.find_first_not_of(kBlank, end);
  return next != text.npos && text[next] == '[' && end_of_value(line) == line.size();
}

// Moves through the members of an object. `wants` is asked for each name, and false ends the walk.
void walk_members(const RowSpan& object, const std::string& file,
                  const std::function<bool(std::string_view name)>& wants,
                  const std::function<void(std::string_view name, const RowSpan& value)>& use) {
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
    if (!wants(name)) return;
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

}  // namespace

std::string_view without_blanks_behind(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kBlank) + 1);
}

Spans spans_of(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  if (text.starts_with('[')) {
    const size_t inside = text.find_first_not_of(kBlank, 1);
    const bool rows =
        inside == text.npos || std::string_view("{\"][").find(text[inside]) != text.npos;
    return rows && !another_array_follows(text) ? Spans::kElements : Spans::kLines;
  }
  return goes_on_behind_line(text) ? Spans::kValues : Spans::kLines;
}

void for_each_span(std::string_view text, Spans spans, const std::string& file,
                   const std::function<void(const RowSpan&)>& use) {
  if (spans == Spans::kLines) return for_each_line(text, use);
  if (spans == Spans::kValues) return for_each_value(text, file, use);
  const Place place = elements_of({text, 1, 0}, file, use);
  FSDP_CHECK(place.ends(), "{}:{}: malformed JSON: text behind the end of the array", file,
             place.line());
}

void for_each_element(const RowSpan& outer, const std::string& file,
                      const std::function<void(const RowSpan&)>& use) {
  const size_t first = outer.text.find_first_not_of(kBlank);
  FSDP_CHECK(first != std::string_view::npos && outer.text[first] == '[',
             "{}:{}: expected an array", file, outer.line);
  elements_of(outer, file, use);
}

void for_each_member(const RowSpan& object, const std::string& file,
                     const std::function<void(std::string_view, const RowSpan&)>& use) {
  walk_members(
      object, file, [](std::string_view) { return true; }, use);
}

std::string_view span_at(std::string_view text, Spans spans) {
  if (spans == Spans::kValues) return text.substr(0, end_of_value(text));
  const bool element = spans == Spans::kElements;
  return without_blanks_behind(text.substr(0, element ? end_of_element(text) : text.find('\n')));
}

std::string_view first_object(std::string_view text) {
  const bool elements = spans_of(text) == Spans::kElements;
  const size_t first = text.find_first_not_of(elements ? " \t\r\n[" : kBlank);
  if (first == text.npos || text[first] != '{') return "";
  text.remove_prefix(first);
  const size_t end = std::min(end_of_value(text), text.size());
  const size_t next = text.find_first_not_of(elements ? kBlank : " \t\r", end);
  const std::string_view may_follow = elements ? ",]" : "\n{";
  const bool goes_on = next == text.npos || may_follow.find(text[next]) != may_follow.npos;
  return goes_on ? text.substr(0, end) : "";
}

std::string_view first_member(std::string_view text,
                              std::initializer_list<std::string_view> names) {
  std::string_view found;
  const auto wants = [&](std::string_view name) {
    const bool wanted = names.size() == 0 || std::ranges::find(names, name) != names.end();
    if (wanted) found = name;
    return !wanted;
  };
  try {
    walk_members({text, 1, 0}, "", wants, [](std::string_view, const RowSpan&) {});
  } catch (const Error&) {
    return "";
  }
  return found;
}

}  // namespace fsdp::data
