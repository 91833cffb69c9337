// Values of chat templates, which behave as Python's objects in jinja2. Texts, sequences and dicts
// never change, so values share them; a value is copied by its pointer. Questions and iteration are
// in value.cpp, operators in operators.cpp, values as text in value_text.cpp. Not here: methods
// (functions.h), single texts and numbers (python_text.h).
//
// [Note: identity] A message of the input is a Dict that knows its number. Slices, `set`, filters
// and arguments pass the pointer on, so a loop knows which message its variable is.
//
// [Note: depth] Objects know how deeply they are nested, and nothing nests deeper than kNesting:
// repr, comparison and destruction may recurse. A shared object may be seen exponentially
// often, so whatever walks a value works on a Budget.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "core/io/json.h"

namespace fsdp::data::jinja {

constexpr int kNesting = 100;             // of statements, expressions and values
constexpr size_t kMostBytes = 64u << 20;  // of a text, also of the whole output
constexpr size_t kMostItems = 1'000'000;  // of a list that a template makes

// An error that Python or jinja2 raises, too. The evaluator adds where in the template it happened.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
template <typename... Args>
[[noreturn]] void fault(fmt::format_string<Args...> format, Args&&... args) {
  throw Fault(fmt::format(format, std::forward<Args>(args)...));
}

// The work that a rendering may still do. A statement, a call or a turn of a loop is a step; parts
// of expressions, and work on bytes and items, are grains of one.
class Budget {
 public:
  explicit Budget(int64_t steps) : steps_(steps), left_(steps * kGrains) {}
  void step(int64_t count = 1) { spend(count * kGrains); }
  void work_on(size_t amount) { spend(static_cast<int64_t>(amount / 64 + 1)); }

 private:
  static constexpr int64_t kGrains = 16;
  void spend(int64_t grains) {
    left_ -= grains;
    if (left_ < 0) fault("the template takes more than {} steps", steps_);
  }
  int64_t steps_, left_;
};

// Bytes [begin, end) of a text, written for a message or in a generation block.
struct Mark {
  static constexpr int64_t kGeneration = -1;
  size_t begin, end;
  int64_t message;  // or kGeneration
};
struct Text {
  std::string bytes;
  bool markup = false;           // of the filter safe: `+` escapes the other text
  std::vector<Mark> marks = {};  // of a text that a block or a macro has captured
};
struct Sequence;
struct Dict;
struct Namespace;
struct Function;
struct Generator;
struct LoopState;
struct None {
  bool operator==(const None&) const = default;
};
struct Undefined {
  const char* of = nullptr;           // the type that lacks it; null: no variable has the name
  const std::string* name = nullptr;  // of the template; null: not a name
  bool operator==(const Undefined&) const { return true; }
};

class Value {
 public:
  Value() = default;  // undefined
  Value(Undefined value) : value_(value) {}
  Value(None) : value_(None()) {}
  Value(bool value) : value_(value) {}
  Value(int64_t value) : value_(value) {}
  Value(double value) : value_(value) {}
  Value(std::string text) : value_(std::make_shared<Text>(Text{std::move(text)})) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) = delete;  // would be a bool
  template <typename T>
  Value(std::shared_ptr<T> object) : value_(std::move(object)) {}

  bool is_undefined() const { return get<Undefined>(); }
  bool is_none() const { return get<None>(); }
  bool is_whole() const { return get<bool>() || get<int64_t>(); }  // bool is a kind of int
  bool is_number() const { return is_whole() || get<double>(); }
  template <typename T>
  const T* get() const {  // null for another kind
    return std::get_if<T>(&value_);
  }
  template <typename T>
  T* object() const {  // null for another kind
    const auto* pointer = std::get_if<std::shared_ptr<T>>(&value_);
    return pointer ? pointer->get() : nullptr;
  }
  Text* text() const { return object<Text>(); }
  const std::string& bytes() const { return text()->bytes; }                      // of a text
  int64_t whole() const { return get<bool>() ? *get<bool>() : *get<int64_t>(); }  // if is_whole()
  double number() const { return is_whole() ? static_cast<double>(whole()) : *get<double>(); }
  // The text if nobody else has it, so that it may change; else null.
  Text* own_text() {
    auto* pointer = std::get_if<std::shared_ptr<Text>>(&value_);
    return pointer && pointer->use_count() == 1 ? pointer->get() : nullptr;
  }
  bool is_same(const Value& other) const { return value_ == other.value_; }  // the same object
  size_t kind() const { return value_.index(); }
  int depth() const;

 private:
  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<Text>,
               std::shared_ptr<Sequence>, std::shared_ptr<Dict>, std::shared_ptr<Namespace>,
               std::shared_ptr<Function>, std::shared_ptr<Generator>, std::shared_ptr<LoopState>>
      value_;
};

// Asked for the elements of something, one by one; false: the end.
using Next = std::function<bool(Value& out)>;

struct Sequence {
  enum class Kind : uint8_t { kList, kTuple, kRange, kItems };  // kItems: dict.items()
  Kind kind = Kind::kList;
  int depth = 0;
  bool hashable = false;
  std::vector<Value> items;

  bool is_list() const { return kind <= Kind::kTuple; }  // or a tuple
};
struct Dict {
  int depth = 0;
  int64_t message = -1;  // its number, see [Note: identity]
  std::vector<std::pair<Value, Value>> members;

  const Value* find(std::string_view key) const;
  const Value* find(const Value& key, Budget& budget) const;  // faults where Python cannot hash
};
struct Namespace {
  std::map<std::string, Value, std::less<>> members;
};
// The value of a map, select or items filter: each element is made when it is asked for, once.
struct Generator {
  int depth = 0;
  Next next;
};
struct Callable;   // functions.h
struct Statement;  // syntax.h
struct Function {
  std::string name;
  const Callable* callable = nullptr;
  const Statement* macro = nullptr;  // neither: Python has it, templates may not call it
  Value self = {};                   // of a method
  int depth = 0;
};
// The variable `loop` of a `for`.
struct LoopState {
  int depth = 0;
  Next pull;
  Value previous, current, next;
  bool peeked = false, has_next = false;
  int64_t index0 = -1;

  bool advance();
  bool peek();  // whether there is a next element
};

// ---- making values -----------------------------------------------------------------------------

int depth_around(const Value& value);  // of an object that holds it; faults above kNesting
void check_size(size_t bytes);         // of a text; faults above kMostBytes
Value make_text(std::string bytes, bool markup = false);
Value make_sequence(std::vector<Value> items, Sequence::Kind kind = Sequence::Kind::kList);
Value make_pair(const std::pair<Value, Value>& member);
Value make_dict(std::vector<std::pair<Value, Value>> members);  // with different keys
Value make_generator(const Value& source, Next next);
Value from_json(const Json& json);

// ---- questions ---------------------------------------------------------------------------------

// The things that Python iterates over: elements, keys, characters. Faults where Python cannot.
Next iterate(Value source);
std::vector<Value> to_vector(const Value& source, Budget& budget);
const char* type_name(const Value& value);  // as Python's
bool truth(const Value& value);
int64_t length(const Value& value);  // len(); faults where Python has none
bool is_hashable(const Value& value);
bool equal(const Value& a, const Value& b, Budget& budget);
// a < b; `sign` is the operator that the message of a fault names.
bool less(const Value& a, const Value& b, Budget& budget, const char* sign = "<");
bool contains(const Value& container, const Value& item, Budget& budget);
void check_defined(const Value& value);  // faults and says which name is undefined

// ---- operators ---------------------------------------------------------------------------------

Value add(Value a, const Value& b, Budget& budget);  // a text that only `a` has grows in place
Value subtract(Value a, const Value& b, Budget& budget);
Value multiply(Value a, const Value& b, Budget& budget);
Value modulo(Value a, const Value& b, Budget& budget);
Value negative(const Value& a);
// a.name: the attribute, else the key; undefined if neither exists. `name` outlives the result.
Value attribute(const Value& of, const std::string& name);
// a[key]: the key or element, else the attribute. `name`: what errors call it, or null.
Value item(const Value& of, const Value& key, const std::string* name, Budget& budget);
// a[start:stop:step]; None: not given.
Value slice(const Value& of, const std::array<Value, 3>& parts, Budget& budget);

// ---- texts -------------------------------------------------------------------------------------

// A part of a text, a view into it, with its marks; the text itself where it is all.
Value part_of(const Value& text, std::string_view part);
void append_text(Text& out, const Text& more);  // with its marks
// Python's str() and repr(), and json.dumps() with `indent` of a level (none: all in one line).
// They fault for what has no text that is the same in every run of Python, such as functions.
void append_str(std::string& out, const Value& value, Budget& budget);
void append_repr(std::string& out, const Value& value, Budget& budget);
void append_json(std::string& out, const Value& value, bool ascii,
                 const std::optional<std::string>& indent, Budget& budget, int level = 0);
Value to_text(const Value& value, Budget& budget);  // itself where it is a text

}  // namespace fsdp::data::jinja
