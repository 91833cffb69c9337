// Records as JSON objects, strictly: one list of a record's members reads, writes and checks it.
//   template <typename File> void visit(File& file, LinkRate& link) {
//     file("latency_us", link.latency_us, Allows::kFrom0);
//     file.optional("hop_us", link.hop_us, Allows::kFrom0);
//   }
// A member is a text, a number, a bool, a record with such a list, an array of these, or numbers by
// dtype. Another type brings its own read_member() and json_of(), outside of an anonymous
// namespace. Errors name the file and the key. A key that the list does not have is an error.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "core/dtype.h"
#include "core/error.h"
#include "core/io/json.h"

namespace fsdp::tools {

enum class Allows : uint8_t { kAbove0, kFrom0 };

inline std::string got(const Json& value) { return value.dump({.ascii = true}); }

DType read_dtype(const std::string& name, const std::string& where);

// One object of a file, whose keys are asked for one by one.
class RecordReader {
 public:
  static constexpr bool kReads = true;

  RecordReader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    FSDP_CHECK(object.is_object(), "{}: expected an object, got {}", where_, got(object));
  }

  template <typename T>
  void operator()(std::string_view key, T& value, Allows allows = Allows::kAbove0) {
    const Json* const json = find(key);
    FSDP_CHECK(json, "{}: expected a key \"{}\", got none", where_, key);
    read(*json, of(key), value, allows);
  }
  // What is absent stays as it is.
  template <typename T>
  void optional(std::string_view key, T& value, Allows allows = Allows::kAbove0) {
    if (const Json* const json = find(key)) read(*json, of(key), value, allows);
  }
  const Json* find(std::string_view key) {
    known_.emplace_back(key);
    return object_.find(key);
  }
  std::string of(std::string_view key) const { return fmt::format("{}: {}", where_, key); }
  bool knows(std::string_view key) const {
    return std::find(known_.begin(), known_.end(), key) != known_.end();
  }
  void done() const {
    for (const auto& [key, value] : object_.items()) {
      FSDP_CHECK(knows(key), "{}: unknown key \"{}\"; known: {}", where_, key,
                 fmt::join(known_, ", "));
    }
  }

  template <typename T>
  static void read(const Json& json, const std::string& where, T& value,
                   Allows allows = Allows::kAbove0) {
    if constexpr (requires { read_member(json, where, value); }) {
      read_member(json, where, value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      FSDP_CHECK(json.is_string(), "{}: expected a text, got {}", where, got(json));
      value = json.text();
    } else if constexpr (std::is_same_v<T, bool>) {
      FSDP_CHECK(json.is_boolean(), "{}: expected true or false, got {}", where, got(json));
      value = json.get<bool>();
    } else if constexpr (std::is_arithmetic_v<T>) {
      const double number = number_of(json, where, allows);
      if constexpr (std::is_integral_v<T>) {
        constexpr int64_t kMost = sizeof(T) == 4 ? 1 << 20 : int64_t{1} << 53;
        FSDP_CHECK(number == std::floor(number) && number <= static_cast<double>(kMost),
                   "{}: expected a whole number up to {}, got {}", where, kMost, got(json));
      }
      value = static_cast<T>(number);
    } else if constexpr (std::is_same_v<T, std::map<DType, double>>) {
      RecordReader dtypes(json, where);
      for (const auto& [name, rate] : json.items()) dtypes(name, value[read_dtype(name, where)]);
    } else if constexpr (requires { value.emplace_back(); }) {
      FSDP_CHECK(json.is_array(), "{}: expected an array, got {}", where, got(json));
      for (size_t i = 0; i < json.size(); ++i) {
        read(json[i], fmt::format("{}[{}]", where, i), value.emplace_back());
      }
    } else {
      RecordReader inner(json, where);
      visit(inner, value);
      inner.done();
    }
  }

 private:
  static double number_of(const Json& json, const std::string& where, Allows allows) {
    const double value = json.is_number() ? json.get<double>() : std::nan("");
    const bool from_0 = allows == Allows::kFrom0;
    FSDP_CHECK(std::isfinite(value) && (from_0 ? value >= 0 : value > 0),
               "{}: expected a number {}, got {}", where, from_0 ? "from 0" : "above 0", got(json));
    return value;
  }

  const Json& object_;
  std::string where_;
  std::vector<std::string> known_;
};

class RecordWriter {
 public:
  static constexpr bool kReads = false;

  template <typename T>
  void operator()(std::string_view key, T& value, Allows = Allows::kAbove0) {
    json_[key] = write(value);
  }
  // What is as in a new record is left out.
  template <typename T>
  void optional(std::string_view key, T& value, Allows = Allows::kAbove0) {
    if (value != T{}) json_[key] = write(value);
  }

  template <typename T>
  static Json write(T value) {
    if constexpr (requires { json_of(value); }) {
      return json_of(value);
    } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
      return Json(value);
    } else if constexpr (std::is_same_v<T, std::map<DType, double>>) {
      Json json = Json::object();
      for (const auto& [dtype, rate] : value) json[name_of(dtype)] = rate;
      return json;
    } else if constexpr (requires { value.emplace_back(); }) {
      Json json = Json::array();
      for (const auto& each : value) json.push_back(write(each));
      return json;
    } else {
      RecordWriter inner;
      visit(inner, value);
      return inner.json_;
    }
  }

 private:
  Json json_ = Json::object();
};

}  // namespace fsdp::tools
