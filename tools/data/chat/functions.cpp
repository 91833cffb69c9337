// The functions that templates call by name. Contract: tools/data/chat/functions.h.
#include "tools/data/chat/functions.h"

#include <charconv>
#include <cmath>

#include <time.h>

#include "tools/data/chat/python_text.h"
#include "tools/data/chat/template.h"

namespace fsdp::data::jinja {
namespace {

constexpr size_t kMostRange = 100'000;  // as the sandbox of jinja2

// ---- arguments ---------------------------------------------------------------------------------

// The arguments by parameter, null where not given. Faults as Python does for too many, unknown and
// missing ones. A parameter "" has no name to call it by.
template <size_t N>
std::array<const Value*, N> bind(const Call& call, size_t required,
                                 const std::array<std::string_view, N>& parameters) {
  std::array<const Value*, N> out{};
  const auto& [values, named] = call.arguments;
  if (values.size() > N) fault("{}() takes at most {} arguments", call.name, N);
  for (size_t i = 0; i < values.size(); ++i) out[i] = &values[i];
  for (const auto& [name, value] : named) {
    const auto at = std::find(parameters.begin(), parameters.end(), name) - parameters.begin();
    const bool free =
        at < static_cast<ptrdiff_t>(N) && !name.empty() && !out[static_cast<size_t>(at)];
    if (!free) fault("{}() got an unexpected argument '{}'", call.name, name);
    out[static_cast<size_t>(at)] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!out[i]) fault("{}() lacks its argument {}", call.name, i + 1);
  }
  return out;
}
bool given(const Value* value) { return value && !value->is_none(); }
bool is_on(const Value* flag) { return flag && truth(*flag); }

int64_t whole(const Call& call, const Value& value) {
  if (value.is_whole()) return value.whole();
  fault("{}(): '{}' object cannot be interpreted as an integer", call.name, type_name(value));
}

const std::string& bytes(const Call& call, const Value& value) {
  if (value.text()) return value.bytes();
  fault("{}() expects a str, got a {}", call.name, type_name(value));
}

// ---- filters and methods of texts --------------------------------------------------------------

// A filter or method without arguments that changes a text.
template <std::string (*change)(std::string_view text), bool keeps_markup>
Value run_change(const Call& call) {
  bind<0>(call, 0, {});
  const Value text = to_text(call.self, call.work);
  call.work.work_on(text.bytes().size() * 8);
  return make_text(change(text.bytes()), keeps_markup && text.text()->markup);
}

template <Side side, bool has_name>
Value run_strip(const Call& call) {
  const auto [characters] = bind<1>(call, 0, {has_name ? "chars" : ""});
  const Value text = to_text(call.self, call.work);
  std::optional<std::string_view> removed;
  if (given(characters)) removed = bytes(call, *characters);
  return part_of(text, strip(text.bytes(), side, removed));
}

// An argument that is a number of blanks or a text itself.
std::string indentation(const Call& call, const Value& by) {
  if (by.text()) return by.bytes();
  return std::string(static_cast<size_t>(std::clamp<int64_t>(whole(call, by), 0, 1000)), ' ');
}

Value run_tojson(const Call& call) {
  const auto [ascii, indent, separators, sort] =
      bind<4>(call, 0, {"ensure_ascii", "indent", "separators", "sort_keys"});
  if (given(separators) || is_on(sort)) {
    fault("tojson with separators or sort_keys is not known");
  }
  const auto by = given(indent) ? std::optional(indentation(call, *indent)) : std::nullopt;
  std::string out;
  append_json(out, call.self, is_on(ascii), by, call.work);
  return out;
}

Value run_string(const Call& call) {
  bind<0>(call, 0, {});
  return to_text(call.self, call.work);
}

Value run_safe(const Call& call) {
  auto out = std::make_shared<Text>(*run_string(call).text());
  out->markup = true;
  return out;
}

Value run_replace(const Call& call) {
  const auto [old, by, count] = bind<3>(call, 2, {"old", "new", "count"});
  const Value text = to_text(call.self, call.work);
  const Value from = to_text(*old, call.work), to = to_text(*by, call.work);
  return make_text(replace(text.bytes(), from.bytes(), to.bytes(),
                           given(count) ? whole(call, *count) : -1, kMostBytes));
}

Value run_indent(const Call& call) {
  const auto [width, first, blank] = bind<3>(call, 0, {"width", "first", "blank"});
  const std::string by = width ? indentation(call, *width) : "    ";
  const std::string text = bytes(call, call.self) + "\n";
  std::string out;
  bool begins = true;
  for (const std::string_view line : split_lines(text)) {
    const bool indents = begins ? is_on(first) : !line.empty() || is_on(blank);
    if (!std::exchange(begins, false)) out += '\n';
    if (indents) out += by;
    out += line;
    if (out.size() > kMostBytes) break;
  }
  call.work.work_on(out.size());
  return make_text(std::move(out), call.self.text()->markup);
}

Value method_split(const Call& call) {
  const auto [by, most] = bind<2>(call, 0, {"sep", "maxsplit"});
  std::optional<std::string_view> separator;
  if (given(by)) separator = bytes(call, *by);
  if (separator && separator->empty()) fault("empty separator");
  std::vector<Value> parts;
  for (const auto part : split(call.self.bytes(), separator, most ? whole(call, *most) : -1)) {
    call.work.work_on(part.size());
    parts.push_back(part_of(call.self, part));
  }
  return make_sequence(std::move(parts));
}

template <bool at_end>
Value method_affix(const Call& call) {
  const auto [affix] = bind<1>(call, 1, {""});
  const std::string& text = call.self.bytes();
  const auto matches = [&](const Value& value) {
    return at_end ? text.ends_with(bytes(call, value)) : text.starts_with(bytes(call, value));
  };
  const auto* tuple = affix->object<Sequence>();
  if (!tuple || tuple->kind != Sequence::Kind::kTuple) return matches(*affix);
  call.work.work_on(tuple->items.size());
  return std::any_of(tuple->items.begin(), tuple->items.end(), matches);
}

// The result keeps the mark of the filter safe.
Value method_replace(const Call& call) {
  const auto [old, by, count] = bind<3>(call, 2, {"", "", ""});
  const bool markup = call.self.text()->markup;
  const auto escaped = [&](const Value& value) {
    const std::string& text = bytes(call, value);
    return markup && !value.text()->markup ? escape_html(text) : text;
  };
  return make_text(replace(call.self.bytes(), escaped(*old), escaped(*by),
                           count ? whole(call, *count) : -1, kMostBytes),
                   markup);
}

// ---- numbers, absence --------------------------------------------------------------------------

// A number as Python's int() and float() read it: single underscores may stand between digits.
template <typename Number>
std::optional<Number> parsed(std::string_view text) {
  const auto is_digit = [&](size_t at) {
    return at < text.size() && text[at] >= '0' && text[at] <= '9';
  };
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool between = i > 0 && is_digit(i - 1) && is_digit(i + 1);
    const bool plus = i == 0 && text[0] == '+' && text.find('-') != 1;
    if (text[i] != '_' && !plus) plain += text[i];
    if (text[i] == '_' && !between) return std::nullopt;
  }
  Number out{};
  const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), out);
  if (error == std::errc::result_out_of_range) fault("the number {} is too large", text);
  const bool all = error == std::errc() && end == plain.data() + plain.size();
  return all ? std::optional(out) : std::nullopt;
}

Value run_int(const Call& call) {
  const auto [otherwise, base] = bind<2>(call, 0, {"default", "base"});
  if (base) fault("int with a base is not known");
  check_defined(call.self);
  if (call.self.is_whole()) return call.self.whole();
  std::optional<double> number;
  if (call.self.text()) {
    const std::string_view text = strip(call.self.bytes());
    if (const auto found = parsed<int64_t>(text)) return *found;
    number = parsed<double>(text);
  } else if (call.self.is_number()) {
    number = call.self.number();
  }
  if (!number || !std::isfinite(*number)) return otherwise ? *otherwise : Value(int64_t{0});
  if (std::abs(*number) >= 0x1p63) fault("a whole number of more than 64 bits");
  return static_cast<int64_t>(*number);
}

Value run_default(const Call& call) {
  const auto [otherwise, boolean] = bind<2>(call, 0, {"default_value", "boolean"});
  const bool falsy = is_on(boolean) && !truth(call.self);
  if (!call.self.is_undefined() && !falsy) return call.self;
  return otherwise ? *otherwise : Value(std::string());
}

Value run_length(const Call& call) {
  bind<0>(call, 0, {});
  if (call.self.text()) call.work.work_on(call.self.bytes().size());
  return length(call.self);
}

// ---- sequences ---------------------------------------------------------------------------------

// The value under a path, "a.b.0", in an element; undefined becomes `otherwise`.
Value follow(Value value, const Value& path, const Value& otherwise, Budget& budget) {
  const auto step = [&](const Value& part) {
    value = item(value, part, nullptr, budget);
    if (value.is_undefined()) value = otherwise.is_undefined() ? value : otherwise;
  };
  if (!path.text()) step(path);
  if (!path.text()) return value;
  for (const std::string_view part : split(path.bytes(), ".", -1)) {
    const bool digits = part.find_first_not_of("0123456789") == part.npos;
    const auto number = digits ? parsed<int64_t>(part) : std::nullopt;
    step(number ? Value(*number) : Value(part));
  }
  return value;
}

// The elements of the filter's input, each changed by `change`, which says whether it is kept. As
// in Python nothing happens before the first element is asked for.
Value lazy(const Call& call, Next change, bool asks_truth = true) {
  auto next = [self = call.self, items = Next(), asks_truth, change = std::move(change),
               &work = call.work](Value& out) mutable {
    if (!items) items = iterate(asks_truth && !truth(self) ? Value() : self);
    while (items(out)) {
      work.step();
      if (change(out)) return true;
    }
    return false;
  };
  return make_generator(call.self, std::move(next));
}

Value take_first(Arguments& arguments) {
  const Value first = arguments.values.front();
  arguments.values.erase(arguments.values.begin());
  return first;
}

Value run_map(const Call& call) {
  Arguments arguments = call.arguments;
  if (arguments.values.empty()) {
    const auto [path, given_default] = bind<2>(call, 1, {"attribute", "default"});
    return lazy(call, [path = *path, otherwise = given(given_default) ? *given_default : Value(),
                       &work = call.work](Value& value) {
      value = follow(std::move(value), path, otherwise, work);
      return true;
    });
  }
  const Value name = take_first(arguments);
  const Callable* filter = name.text() ? find_filter(name.bytes()) : nullptr;
  if (!filter) fault("map with a filter that is not known");
  return lazy(call, [filter, arguments, &work = call.work](Value& value) {
    value = filter->run({filter->name, value, arguments, work});
    return true;
  });
}

// selectattr, rejectattr, reject: whether a test holds for the element, or for what lies under a
// path in it. Without a test its truth counts.
template <bool keeps, bool of_attribute>
Value run_select(const Call& call) {
  Arguments arguments = call.arguments;
  if (of_attribute && arguments.values.empty()) fault("Missing parameter for attribute name");
  Value path;
  if (of_attribute) path = take_first(arguments);
  const Callable* test = nullptr;
  if (!arguments.values.empty()) {
    const Value name = take_first(arguments);
    test = name.text() ? find_test(name.bytes()) : nullptr;
    if (!test) fault("{} with a test that is not known", call.name);
  }
  return lazy(call, [path, test, arguments, &work = call.work](Value& value) {
    const Value tested = of_attribute ? follow(value, path, {}, work) : value;
    return truth(test ? test->run({test->name, tested, arguments, work}) : tested) == keeps;
  });
}

// A key by which texts are compared without case.
Value lowered(const Value& value) { return value.text() ? Value(lower(value.bytes())) : value; }

Value run_unique(const Call& call) {
  bind<0>(call, 0, {});
  const auto is_new = [seen = Dict{}, &work = call.work](Value& value) mutable {
    const Value key = lowered(value);
    if (seen.find(key, work)) return false;
    seen.members.emplace_back(key, None());
    return true;
  };
  return lazy(call, is_new, false);
}

Value run_items(const Call& call) {
  bind<0>(call, 0, {});
  return make_generator(call.self, [self = call.self, at = size_t{0}](Value& out) mutable {
    const auto* dict = self.object<Dict>();
    if (!dict && !self.is_undefined()) fault("Can only get item pairs from a mapping.");
    return dict && at < dict->members.size() && (out = make_pair(dict->members[at++]), true);
  });
}

Value run_list(const Call& call) {
  bind<0>(call, 0, {});
  return make_sequence(to_vector(call.self, call.work));
}

Value run_join(const Call& call) {
  const auto [between, path] = bind<2>(call, 0, {"d", "attribute"});
  const Value separator = between ? to_text(*between, call.work) : Value(std::string());
  std::string out;
  bool first = true;
  const Next next = iterate(call.self);
  for (Value item; next(item);) {
    const size_t before = out.size();
    if (!std::exchange(first, false)) out += separator.bytes();
    if (given(path)) item = follow(std::move(item), *path, {}, call.work);
    append_str(out, item, call.work);
    call.work.work_on(out.size() - before);
  }
  return out;
}

Value run_dictsort(const Call& call) {
  const bool plain = call.arguments.values.empty() && call.arguments.named.empty();
  if (!plain) fault("dictsort with arguments is not known");
  check_defined(call.self);
  const auto* dict = call.self.object<Dict>();
  if (!dict) fault("'{}' object has no attribute 'items'", type_name(call.self));
  std::vector<Value> out;
  for (const auto& member : dict->members) out.push_back(make_pair(member));
  const auto key = [](const Value& pair) { return lowered(pair.object<Sequence>()->items[0]); };
  std::ranges::stable_sort(
      out, [&](const Value& a, const Value& b) { return less(key(a), key(b), call.work); });
  return make_sequence(std::move(out));
}

// ---- functions ---------------------------------------------------------------------------------

Value run_range(const Call& call) {
  const auto [first, second, third] = bind<3>(call, 1, {"", "", ""});
  int64_t at = second ? whole(call, *first) : 0;
  const int64_t stop = whole(call, second ? *second : *first);
  const int64_t step = third ? whole(call, *third) : 1;
  if (step == 0) fault("range() arg 3 must not be zero");
  std::vector<Value> items;
  for (bool ends = false; !ends && (step > 0 ? at < stop : at > stop);) {
    if (items.size() == kMostRange) fault("Range too big: more than {} numbers", kMostRange);
    items.push_back(at);
    ends = __builtin_add_overflow(at, step, &at);
  }
  call.work.work_on(items.size());
  return make_sequence(std::move(items), Sequence::Kind::kRange);
}

Value run_namespace(const Call& call) {
  const auto& [values, named] = call.arguments;
  call.work.step(16);  // it lives until the end
  Namespace& out = call.work.namespaces.emplace_back();
  if (!values.empty()) {
    const auto* dict = values[0].object<Dict>();
    if (!dict || values.size() > 1) fault("namespace() takes one dict, and names");
    for (const auto& [key, value] : dict->members) out.members[bytes(call, key)] = value;
  }
  for (const auto& [name, value] : named) out.members[name] = value;
  return std::shared_ptr<Namespace>(std::shared_ptr<void>(), &out);
}

Value run_raise_exception(const Call& call) {
  const auto [message] = bind<1>(call, 1, {"message"});
  throw RaisedByTemplate(to_text(*message, call.work).bytes());
}

Value run_strftime_now(const Call& call) {
  const auto [format] = bind<1>(call, 1, {"format"});
  // A blank at the end: a result is never empty, so that 0 means that it is too long.
  const std::string padded = bytes(call, *format) + " ";
  for (const char* const unknown : {"%f", "%z", "%Z", "%:", "%s"}) {
    if (padded.find(unknown) != padded.npos) fault("{} of strftime_now is not known", unknown);
  }
  const std::time_t seconds = std::time(nullptr);
  std::tm now = call.work.clock.value_or(std::tm());
  if (!call.work.clock) localtime_r(&seconds, &now);
  std::string out(padded.size() + 4096, '\0');
  const size_t size = strftime(out.data(), out.size(), padded.c_str(), &now);  // in the C locale
  if (size == 0) fault("the result of strftime_now is too long");
  return out.substr(0, size - 1);
}

// ---- tests -------------------------------------------------------------------------------------

template <bool (*holds)(const Value& value)>
Value run_test(const Call& call) {
  bind<0>(call, 0, {});
  return holds(call.self);
}

// It has len() and elements by number or key.
bool is_sequence(const Value& value) {
  const auto* sequence = value.object<Sequence>();
  return value.is_undefined() || value.text() || value.object<Dict>() ||
         (sequence && sequence->kind != Sequence::Kind::kItems);
}
bool is_iterable(const Value& value) {
  return is_sequence(value) || value.object<Sequence>() || value.object<Generator>() ||
         value.object<LoopState>();
}

Value run_equal(const Call& call) {
  const auto [other] = bind<1>(call, 1, {""});
  return equal(call.self, *other, call.work);
}

Value run_in(const Call& call) {
  const auto [container] = bind<1>(call, 1, {""});
  return contains(*container, call.self, call.work);
}

// ---- methods of dicts --------------------------------------------------------------------------

Value method_items(const Call& call) {
  bind<0>(call, 0, {});
  std::vector<Value> items;
  for (const auto& member : call.self.object<Dict>()->members) items.push_back(make_pair(member));
  call.work.work_on(items.size());
  return make_sequence(std::move(items), Sequence::Kind::kItems);
}

Value method_get(const Call& call) {
  const auto [key, otherwise] = bind<2>(call, 1, {"", ""});
  const Value* found = call.self.object<Dict>()->find(*key, call.work);
  return found ? *found : otherwise ? *otherwise : Value(None());
}

// ---- names -------------------------------------------------------------------------------------

constexpr Callable kFilters[] = {{"tojson", run_tojson},
                                 {"length", run_length},
                                 {"trim", run_strip<Side::kBoth, true>},
                                 {"string", run_string},
                                 {"default", run_default},
                                 {"map", run_map},
                                 {"items", run_items},
                                 {"selectattr", run_select<true, true>},
                                 {"rejectattr", run_select<false, true>},
                                 {"reject", run_select<false, false>},
                                 {"safe", run_safe},
                                 {"list", run_list},
                                 {"join", run_join},
                                 {"lower", run_change<lower, true>},
                                 {"upper", run_change<upper, true>},
                                 {"title", run_change<title_words, false>},
                                 {"dictsort", run_dictsort},
                                 {"int", run_int},
                                 {"indent", run_indent},
                                 {"replace", run_replace},
                                 {"unique", run_unique}};

constexpr Callable kTests[] = {
    {"defined", run_test<[](const Value& of) { return !of.is_undefined(); }>},
    {"undefined", run_test<[](const Value& of) { return of.is_undefined(); }>},
    {"none", run_test<[](const Value& of) { return of.is_none(); }>},
    {"string", run_test<[](const Value& of) { return of.text() != nullptr; }>},
    {"mapping", run_test<[](const Value& of) { return of.object<Dict>() != nullptr; }>},
    {"boolean", run_test<[](const Value& of) { return of.get<bool>() != nullptr; }>},
    {"true", run_test<[](const Value& of) { return of.get<bool>() && truth(of); }>},
    {"false", run_test<[](const Value& of) { return of.get<bool>() && !truth(of); }>},
    {"iterable", run_test<is_iterable>},
    {"sequence", run_test<is_sequence>},
    {"equalto", run_equal},
    {"==", run_equal},
    {"in", run_in}};
constexpr Callable kGlobal[] = {{"range", run_range},
                                {"namespace", run_namespace},
                                {"raise_exception", run_raise_exception},
                                {"strftime_now", run_strftime_now}};
constexpr Callable kOfText[] = {{"strip", run_strip<Side::kBoth, false>},
                                {"split", method_split},
                                {"startswith", method_affix<false>},
                                {"endswith", method_affix<true>},
                                {"lstrip", run_strip<Side::kLeft, false>},
                                {"rstrip", run_strip<Side::kRight, false>},
                                {"replace", method_replace},
                                {"capitalize", run_change<capitalize, true>},
                                {"title", run_change<title, true>},
                                {"upper", run_change<upper, true>}};
constexpr Callable kOfDict[] = {{"get", method_get}, {"items", method_items}};

// Other attributes of Python's types: who asks for one must not get undefined.
constexpr std::string_view kOthersOfText[] = {
    "casefold",  "center",     "count",        "encode",       "expandtabs", "find",
    "format",    "format_map", "index",        "isalnum",      "isalpha",    "isascii",
    "isdecimal", "isdigit",    "isidentifier", "islower",      "isnumeric",  "isprintable",
    "isspace",   "istitle",    "isupper",      "join",         "ljust",      "lower",
    "maketrans", "partition",  "removeprefix", "removesuffix", "rfind",      "rindex",
    "rjust",     "rpartition", "rsplit",       "splitlines",   "swapcase",   "translate",
    "zfill"};
constexpr std::string_view kOthersOfDict[] = {"clear",   "copy",       "fromkeys", "keys",  "pop",
                                              "popitem", "setdefault", "update",   "values"};
constexpr std::string_view kOthersOfNumber[] = {
    "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
    "from_bytes",       "fromhex",   "hex",        "imag",      "is_integer",
    "numerator",        "real",      "to_bytes"};
constexpr std::string_view kOthersOfList[] = {"append", "clear",   "copy",   "count",
                                              "extend", "index",   "insert", "pop",
                                              "remove", "reverse", "sort"};
constexpr std::string_view kOthersOfRange[] = {"count", "index", "start", "step", "stop"};
constexpr std::string_view kOthersOfItems[] = {"isdisjoint", "mapping"};

std::span<const std::string_view> other_attributes(const Value& self) {
  if (self.is_number()) return kOthersOfNumber;
  if (self.text()) return kOthersOfText;
  if (self.object<Dict>()) return kOthersOfDict;
  const auto* sequence = self.object<Sequence>();
  if (!sequence) return {};
  if (sequence->kind == Sequence::Kind::kItems) return kOthersOfItems;
  if (sequence->kind == Sequence::Kind::kList) return kOthersOfList;
  const std::span<const std::string_view> range = kOthersOfRange;
  return sequence->kind == Sequence::Kind::kTuple ? range.first(2) : range;
}

const Callable* find(std::span<const Callable> table, std::string_view name) {
  const auto found = std::ranges::find(table, name, &Callable::name);
  return found == table.end() ? nullptr : &*found;
}

}  // namespace

const Callable* find_filter(std::string_view name) { return find(kFilters, name); }
const Callable* find_test(std::string_view name) { return find(kTests, name); }
std::span<const Callable> global_functions() { return kGlobal; }

Value method_of(const Value& self, std::string_view name) {
  const Callable* callable = nullptr;
  if (self.text()) callable = find(kOfText, name);
  if (self.object<Dict>()) callable = find(kOfDict, name);
  const auto others = other_attributes(self);
  if (!callable && std::ranges::find(others, name) == others.end()) return {};
  return std::make_shared<Function>(
      Function{std::string(name), callable, nullptr, self, depth_around(self)});
}

}  // namespace fsdp::data::jinja
