// Strict reading of the keys of a JSON object, a model's config.json and its like: keys in old and
// new spellings, errors that name the file and the key, and which keys nobody has asked for.
// What the keys mean: models/families. A text as a Json: core/io/json.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/io/json.h"

namespace fsdp {

class ConfigKeys {
 public:
  ConfigKeys(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    FSDP_CHECK(object_.is_object(), "{}: expected a JSON object", where_);
  }

  bool has(const char* key) const { return !absent(key) && !object_.at(key).is_null(); }
  // Not even null, which often means "none" where absence means a default.
  bool absent(const char* key) const {
    asked_->insert(key);
    return !object_.contains(key);
  }
  // Keys of the object that nobody has asked for; "outer.inner" in an object that was opened.
  std::vector<std::string> unasked() const;

  template <typename T>
  T get(const char* key) const {
    FSDP_CHECK(has(key), "{}: {}: missing", where_, key);
    return convert<T>(key);
  }
  // A null is taken as transformers takes it: it is no truth, and no number to compute with.
  template <typename T>
  T get_or(const char* key, T otherwise) const {
    if (has(key)) return convert<T>(key);
    if constexpr (std::is_same_v<T, bool>) return absent(key) ? otherwise : false;
    FSDP_CHECK((!std::is_same_v<T, double>) || absent(key), "{}: {}: expected a number, got null",
               where_, key);
    return otherwise;
  }
  // For a key whose absence means transformers' default and whose null means nothing: an error.
  int64_t extent(const char* key, int64_t absent) const {
    return this->absent(key) ? absent : convert<int64_t>(key);
  }
  // The value under either of two spellings; an error when they contradict each other.
  int64_t either(const char* key, const char* other_key, int64_t absent) const;
  // Token ids, one or a list of them (newer files have several end tokens); empty: none.
  std::vector<int64_t> tokens(const char* key, const char* what = "token ids") const;
  int64_t token(const char* key, int64_t absent = -1) const;  // the first of them; -1: none
  std::vector<std::string> strings(const char* key) const;    // empty: no such list
  // What is asked of it counts for unasked() of this one too.
  ConfigKeys object(const char* key) const {
    ConfigKeys inner(object_.at(key), where_ + ": " + key);
    inner.asked_ = opened_.try_emplace(key, inner.asked_).first->second;
    return inner;
  }
  const std::string& where() const { return where_; }
  // Error for a value that is an object: keys under keys that are not read.
  void refuse_objects() const;
  // Error: "FILE: KEY: MEANING is not supported by this build".
  void refuse_unless(bool supported, const char* key, const char* meaning) const;

 private:
  // At most 32 bits: extents and token ids have no more.
  static bool is_integer(const Json& value) {
    if (value.is_number_unsigned()) return value.get<uint64_t>() <= INT32_MAX;
    return value.is_number_integer() && std::in_range<int32_t>(value.get<int64_t>());
  }
  // Strict: the library would turn 2.5 and true into integers.
  template <typename T>
  T convert(const char* key) const {
    const Json& value = object_.at(key);
    const bool fits = std::is_same_v<T, bool>      ? value.is_boolean()
                      : std::is_same_v<T, int64_t> ? is_integer(value)
                      : std::is_same_v<T, double>  ? value.is_number()
                                                   : value.is_string();
    FSDP_CHECK(fits, "{}: {}: expected {}, got {}", where_, key, type_name<T>(), value.dump());
    return value.get<T>();
  }
  template <typename T>
  static const char* type_name() {
    if (std::is_same_v<T, bool>) return "true or false";
    if (std::is_same_v<T, int64_t>) return "an integer of at most 32 bits";
    return std::is_same_v<T, double> ? "a number" : "a string";
  }

  const Json& object_;
  std::string where_;
  using Asked = std::set<std::string, std::less<>>;
  std::shared_ptr<Asked> asked_ = std::make_shared<Asked>();
  mutable std::map<std::string, std::shared_ptr<Asked>> opened_;
};

// Of lists of keys by what they have in common, {"why they change nothing": ["key", ...]}: what the
// list says that has this key; null: none has.
const std::string* list_with(const Json& lists, std::string_view key);
inline bool is_listed(const Json& lists, std::string_view key) {
  return list_with(lists, key) != nullptr;
}

}  // namespace fsdp
