// JSON values, and strict parsing whose errors name the file and line. nlohmann-json is in json.cpp
// only: its values, precompiled too, make a file take 3.0 s to compile that takes 0.8 s with these.
#pragma once

#include <concepts>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <initializer_list>
#include <iosfwd>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace fsdp {

// Thrown when a value is used as another kind, or when a key or an element does not exist.
class JsonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// How a value becomes text.
struct DumpOptions {
  int indent = -1;       // by so many spaces; -1: all in one line
  bool ascii = false;    // other characters as \uXXXX
  bool replace = false;  // U+FFFD for bytes that are not UTF-8, not \udcXX
};

// Null, true or false, a number, a string, an array, or an object whose keys keep the order in
// which they were set; parse_json() sorts them.
class Json {
 public:
  struct Member;  // of an object: name, value
  using Array = std::vector<Json>;

  Json();
  Json(std::nullptr_t);
  Json(bool value);
  Json(const char* value);
  Json(std::string value);
  Json(std::string_view value);
  template <typename T>
  requires std::integral<T> &&(!std::same_as<T, bool>)Json(T value) {
    if constexpr (std::is_signed_v<T>)
      value_ = static_cast<int64_t>(value);
    else
      value_ = static_cast<uint64_t>(value);
  }
  template <std::floating_point T>
  Json(T value) : value_(static_cast<double>(value)) {}
  template <typename T>
  Json(const std::vector<T>& values) : value_(Array(values.begin(), values.end())) {}
  template <typename T>
  Json(const std::map<std::string, T>& values) : Json(object()) {
    for (const auto& [name, value] : values) (*this)[name] = Json(value);
  }
  // An object when every value is an array of two that begins with a string; else an array.
  Json(std::initializer_list<Json> values);
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();

  static Json array(std::initializer_list<Json> values = {});
  static Json object();
  // Keeps the order of the keys. Throws JsonError.
  static Json parse(std::string_view text);

  bool is_null() const;
  bool is_boolean() const;
  bool is_number() const;
  bool is_number_integer() const;   // of either sign
  bool is_number_unsigned() const;  // a natural number in the text, or set as an unsigned type
  bool is_number_float() const;
  bool is_string() const;
  bool is_array() const;
  bool is_object() const;
  bool is_structured() const { return is_array() || is_object(); }
  const char* type_name() const;

  size_t size() const;  // 0 for null, 1 for a text, number or boolean
  bool empty() const { return size() == 0; }

  // bool, a number type, std::string, Json, and vectors and maps of them. Throws JsonError for
  // another kind; numbers are converted.
  template <typename T>
  T get() const;
  // Implicit get().
  template <typename T>
  requires((std::is_arithmetic_v<T> && !std::same_as<T, char>) || std::same_as<T, std::string>)
  operator T() const {
    return get<T>();
  }
  const std::string& text() const;

  // For objects. at() and the const [] throw for a missing key; the other [] adds it as null.
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  const Json& at(std::string_view key) const;
  Json& at(std::string_view key);
  const Json& operator[](std::string_view key) const { return at(key); }
  Json& operator[](std::string_view key);
  // As above: Clang before 16 also considers a number, to which this converts, indexing the text.
  const Json& operator[](const char* key) const { return at(key); }
  Json& operator[](const char* key) { return (*this)[std::string_view(key)]; }
  template <typename T>
  T value(std::string_view key, const T& otherwise) const;
  std::string value(std::string_view key, const char* otherwise) const;
  const Json* find(std::string_view key) const;     // null when it is not there
  const Json* follow(std::string_view path) const;  // "/key/0/key": where it leads, or null
  const std::deque<Member>& items() const;
  std::deque<Member>& items();
  size_t erase(std::string_view key);  // how many were there
  void update(const Json& other);      // sets all members of another object

  // For arrays. Throws JsonError beyond the end. push_back() makes an array of null.
  template <std::integral I>
  const Json& at(I index) const {
    return element(static_cast<size_t>(index));
  }
  template <std::integral I>
  Json& at(I index) {
    return const_cast<Json&>(element(static_cast<size_t>(index)));
  }
  template <std::integral I>
  const Json& operator[](I index) const {
    return element(static_cast<size_t>(index));
  }
  template <std::integral I>
  Json& operator[](I index) {
    return const_cast<Json&>(element(static_cast<size_t>(index)));
  }
  void push_back(Json value);
  const Json& front() const { return element(0); }
  const Json& back() const { return element(size() - 1); }
  Json& back() { return const_cast<Json&>(element(size() - 1)); }

  // The elements of an array or the values of an object; none of anything else.
  template <typename J>
  struct Iterator {
    J* json;
    size_t index;

    J& operator*() const { return json->nth(index); }
    J* operator->() const { return &json->nth(index); }
    Iterator& operator++() { return ++index, *this; }
    bool operator==(const Iterator&) const = default;
    Iterator operator++(int) { return {json, index++}; }
    using iterator_category = std::forward_iterator_tag;
    using value_type = Json;
    using difference_type = std::ptrdiff_t;
    using pointer = J*;
    using reference = J&;
  };
  Iterator<const Json> begin() const { return {this, 0}; }
  Iterator<const Json> end() const { return {this, is_structured() ? size() : 0}; }
  Iterator<Json> begin() { return {this, 0}; }
  Iterator<Json> end() { return {this, is_structured() ? size() : 0}; }

  // Bytes that are not UTF-8 are replaced or, as odd_bytes.h says, escaped.
  std::string dump(const DumpOptions& options = {}) const;

  // Compares numbers by value and objects in any order of keys.
  friend bool operator==(const Json& a, const Json& b) { return a.equals(b); }
  template <typename T>
  requires(!std::same_as<T, Json> && std::constructible_from<Json, const T&>) friend bool
  operator==(const Json& a, const T& b) {
    return a.equals(Json(b));
  }
  friend std::ostream& operator<<(std::ostream& out, const Json& value);

 private:
  struct Object {
    // Adding a member moves no other: json["b"] = json["a"] reads what [] has returned before.
    std::deque<Member> members;
    bool sorted = true;  // by name
  };

  const Json& nth(size_t index) const;  // of an array or an object
  Json& nth(size_t index) { return const_cast<Json&>(std::as_const(*this).nth(index)); }
  const Json& element(size_t index) const;
  const Array& elements() const;
  bool equals(const Json& other) const;
  bool as_bool() const;
  int64_t as_integer() const;  // beyond int64_t: the same 64 bits, negative
  double as_double() const;
  [[noreturn]] void fail_type(const char* expected) const;
  friend class JsonBuilder;
  friend struct JsonText;

  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, Array, Object> value_;
};

struct Json::Member {
  std::string name;
  Json value;
};

// Refuses invalid UTF-8, trailing text, duplicate keys and more than 64 levels. `source` names the
// text in errors: "config.json:3: malformed JSON: ...".
Json parse_json(std::string_view text, const std::string& source);
// One line of a file; `where` names both in errors: "rows.jsonl:3: malformed JSON: ...".
Json parse_json_line(std::string_view line, const std::string& where);
Json read_json_file(const std::filesystem::path& path);
// Indented by two spaces, newline at the end, atomically.
void write_json_file(const std::filesystem::path& path, const Json& value);

template <typename T>
T Json::get() const {
  if constexpr (std::is_same_v<T, Json>) {
    return *this;
  } else if constexpr (std::is_same_v<T, bool>) {
    return as_bool();
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(as_integer());
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(as_double());
  } else if constexpr (std::is_same_v<T, std::string>) {
    return text();
  } else if constexpr (requires { typename T::mapped_type; }) {
    T out;
    for (const Member& member : items())
      out.emplace(member.name, member.value.get<typename T::mapped_type>());
    return out;
  } else {
    T out;
    for (const Json& element : elements()) out.push_back(element.get<typename T::value_type>());
    return out;
  }
}

template <typename T>
T Json::value(std::string_view key, const T& otherwise) const {
  if (!is_object()) fail_type("object");
  const Json* found = find(key);
  return found ? found->get<T>() : otherwise;
}

}  // namespace fsdp
