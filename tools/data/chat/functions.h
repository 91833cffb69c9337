// The functions that templates call by name: filters, tests, methods of texts and dicts, functions.
// Not here: macros (template.cpp), attributes that are keys (operators.cpp).
#pragma once

#include <ctime>
#include <deque>
#include <span>

#include "tools/data/chat/value.h"

namespace fsdp::data::jinja {

struct Arguments {
  std::vector<Value> values;  // by position
  std::vector<std::pair<std::string, Value>> named;
};
// The state of one rendering.
struct Workspace : Budget {
  std::optional<std::tm> clock;
  std::deque<Namespace> namespaces = {};  // which may hold themselves: values only point to them
};
struct Call {
  std::string_view name;
  const Value& self;  // a filter's input, a method's object
  const Arguments& arguments;
  Workspace& work;
};
struct Callable {
  std::string_view name;
  Value (*run)(const Call& call);
};

// Null: none has this name.
const Callable* find_filter(std::string_view name);
const Callable* find_test(std::string_view name);
std::span<const Callable> global_functions();
// The method of this name as a function; undefined if Python's type has no such attribute. A method
// that Python has and templates may not call is one that fails when it is called.
Value method_of(const Value& self, std::string_view name);

}  // namespace fsdp::data::jinja
