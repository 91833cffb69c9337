// What a JSON value holds and gives. Contract: core/io/json.h. Its text: json.cpp.
#include <algorithm>
#include <charconv>
#include <ostream>

#include <fmt/format.h>

#include "core/io/json.h"

namespace fsdp {

Json::Json() = default;
Json::Json(std::nullptr_t) {}
Json::Json(bool value) : value_(value) {}
Json::Json(const char* value) : value_(std::string(value)) {}
Json::Json(std::string value) : value_(std::move(value)) {}
Json::Json(std::string_view value) : value_(std::string(value)) {}
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;

Json::Json(std::initializer_list<Json> values) {
  const bool object = std::all_of(values.begin(), values.end(), [](const Json& value) {
    return value.is_array() && value.size() == 2 && value.front().is_string();
  });
  if (!object) {
    value_ = Array(values);
    return;
  }
  value_ = Object();
  for (const Json& value : values) (*this)[value[0].text()] = value[1];
}

Json Json::array(std::initializer_list<Json> values) {
  Json out;
  out.value_ = Array(values);
  return out;
}

Json Json::object() {
  Json out;
  out.value_ = Object();
  return out;
}

bool Json::is_null() const { return std::holds_alternative<std::monostate>(value_); }
bool Json::is_boolean() const { return std::holds_alternative<bool>(value_); }
bool Json::is_number_unsigned() const { return std::holds_alternative<uint64_t>(value_); }
bool Json::is_number_float() const { return std::holds_alternative<double>(value_); }
bool Json::is_string() const { return std::holds_alternative<std::string>(value_); }
bool Json::is_array() const { return std::holds_alternative<Array>(value_); }
bool Json::is_object() const { return std::holds_alternative<Object>(value_); }
bool Json::is_number() const { return is_number_integer() || is_number_float(); }
bool Json::is_number_integer() const {
  return std::holds_alternative<int64_t>(value_) || is_number_unsigned();
}

const char* Json::type_name() const {
  constexpr const char* kNames[] = {"null",   "boolean", "number", "number",
                                    "number", "string",  "array",  "object"};
  return kNames[value_.index()];
}

void Json::fail_type(const char* expected) const {
  throw JsonError(fmt::format("type must be {}, but is {}", expected, type_name()));
}

size_t Json::size() const {
  if (const Array* array = std::get_if<Array>(&value_)) return array->size();
  if (const Object* object = std::get_if<Object>(&value_)) return object->members.size();
  return is_null() ? 0 : 1;
}

// ---------------------------------------------------------------------------- what it gives

bool Json::as_bool() const {
  if (!is_boolean()) fail_type("boolean");
  return std::get<bool>(value_);
}

int64_t Json::as_integer() const {
  if (const int64_t* value = std::get_if<int64_t>(&value_)) return *value;
  if (const uint64_t* value = std::get_if<uint64_t>(&value_)) return static_cast<int64_t>(*value);
  if (const bool* value = std::get_if<bool>(&value_)) return *value;
  return static_cast<int64_t>(as_double());
}

double Json::as_double() const {
  if (const int64_t* value = std::get_if<int64_t>(&value_)) return static_cast<double>(*value);
  if (const uint64_t* value = std::get_if<uint64_t>(&value_)) return static_cast<double>(*value);
  if (!is_number_float()) fail_type("number");
  return std::get<double>(value_);
}

const std::string& Json::text() const {
  if (!is_string()) fail_type("string");
  return std::get<std::string>(value_);
}

bool Json::equals(const Json& other) const {
  if (is_number() && other.is_number()) {
    if (is_number_float() || other.is_number_float()) return as_double() == other.as_double();
    const auto negative = [](const Json& j) {
      return std::holds_alternative<int64_t>(j.value_) && j.as_integer() < 0;
    };
    return as_integer() == other.as_integer() && negative(*this) == negative(other);
  }
  if (value_.index() != other.value_.index() || size() != other.size()) return false;
  if (is_null()) return true;
  if (is_boolean()) return as_bool() == other.as_bool();
  if (is_string()) return text() == other.text();
  if (is_array()) return std::equal(elements().begin(), elements().end(), other.elements().begin());
  return std::all_of(items().begin(), items().end(), [&](const Member& member) {
    const Json* found = other.find(member.name);
    return found && *found == member.value;
  });
}

std::ostream& operator<<(std::ostream& out, const Json& value) { return out << value.dump(); }

// ---------------------------------------------------------------------------- objects

const Json* Json::find(std::string_view key) const {
  const Object* object = std::get_if<Object>(&value_);
  if (!object) return nullptr;
  const std::deque<Member>& members = object->members;
  const auto before = [](const Member& member, std::string_view name) {
    return member.name < name;
  };
  const auto found = object->sorted
                         ? std::lower_bound(members.begin(), members.end(), key, before)
                         : std::find_if(members.begin(), members.end(),
                                        [&](const Member& member) { return member.name == key; });
  return found != members.end() && found->name == key ? &found->value : nullptr;
}

const Json& Json::at(std::string_view key) const {
  if (!is_object()) fail_type("object");
  const Json* found = find(key);
  if (!found) throw JsonError(fmt::format("key '{}' not found", key));
  return *found;
}
Json& Json::at(std::string_view key) { return const_cast<Json&>(std::as_const(*this).at(key)); }

Json& Json::operator[](std::string_view key) {
  if (is_null()) value_ = Object();
  if (!is_object()) fail_type("object");
  if (const Json* found = find(key)) return const_cast<Json&>(*found);
  Object& object = std::get<Object>(value_);
  object.sorted = object.sorted && (object.members.empty() || object.members.back().name < key);
  object.members.push_back({std::string(key), Json()});
  return object.members.back().value;
}

std::string Json::value(std::string_view key, const char* otherwise) const {
  return value(key, std::string(otherwise));
}

const Json* Json::follow(std::string_view path) const {
  const Json* place = this;
  while (place && !path.empty()) {
    const size_t end = std::min(path.find('/', 1), path.size());
    const std::string_view step = path.substr(1, end - 1);
    path.remove_prefix(end);
    size_t index = 0;
    std::from_chars(step.data(), step.data() + step.size(), index);
    if (!place->is_array())
      place = place->find(step);
    else
      place = index < place->size() ? &place->nth(index) : nullptr;
  }
  return place;
}

const std::deque<Json::Member>& Json::items() const {
  static const std::deque<Member> kNone;
  if (is_null()) return kNone;
  if (!is_object()) fail_type("object");
  return std::get<Object>(value_).members;
}
std::deque<Json::Member>& Json::items() {
  if (!is_object()) fail_type("object");
  return std::get<Object>(value_).members;
}

size_t Json::erase(std::string_view key) {
  return std::erase_if(items(), [&](const Member& member) { return member.name == key; });
}

void Json::update(const Json& other) {
  for (const Member& member : other.items()) (*this)[member.name] = member.value;
}

// ---------------------------------------------------------------------------- arrays

const Json::Array& Json::elements() const {
  if (!is_array()) fail_type("array");
  return std::get<Array>(value_);
}

const Json& Json::element(size_t index) const {
  const Array& array = elements();
  if (index >= array.size()) throw JsonError(fmt::format("array index {} is out of range", index));
  return array[index];
}

void Json::push_back(Json value) {
  if (is_null()) value_ = Array();
  if (!is_array()) fail_type("array");
  std::get<Array>(value_).push_back(std::move(value));
}

const Json& Json::nth(size_t index) const {
  return is_array() ? std::get<Array>(value_)[index] : items()[index].value;
}

}  // namespace fsdp
