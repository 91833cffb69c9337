// Contract: tools/adopt/given.h.
#include "tools/adopt/given.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"

namespace fsdp::adopt {
namespace {

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  return text;
}

bool is_among(const std::string& text, std::initializer_list<const char*> known) {
  return std::find(known.begin(), known.end(), lower(text)) != known.end();
}

}  // namespace

std::string Given::text() const {
  // What lies in a file of variables beside the settings is printed in no comment.
  for (const char* secret : {"API_KEY", "TOKEN", "SECRET", "PASSWORD"}) {
    if (key.ends_with(secret)) return "(hidden)";
  }
  return fmt::format("{}", fmt::join(values, ","));
}

std::string Given::origin() const {
  const size_t line = place.rfind(':');
  const std::string said =
      key.starts_with("--") ? key + (text() == "true" ? "" : " " + text()) : key + ": " + text();
  return line == std::string::npos
             ? said
             : fmt::format("{} ({})", said, place.substr(place.rfind('/') + 1));
}

void Given::fail(const std::string& expected) const {
  fsdp::fail("{}: {}: expected {}, got {}", place, key, expected,
             is_list ? fmt::format("[{}]", text()) : fmt::format("\"{}\"", text()));
}

void Given::refuse(const std::string& reason) const {
  fsdp::fail("{}: {}: {}: {}", place, key, text(), reason);
}

const std::string& Given::one() const {
  if (is_list || values.size() != 1) fail("one value");
  return values.front();
}

bool Given::truth() const {
  const bool yes = is_among(one(), {"true", "yes", "on", "1"});
  if (!yes && !is_among(one(), {"false", "no", "off", "0"})) fail("true or false");
  return yes;
}

double Given::number() const {
  double value = 0;
  const std::string& text = one();
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || !std::isfinite(value)) fail("a number");
  return value;
}

int64_t Given::whole() const {
  const double value = number();
  if (value != std::floor(value) || std::abs(value) > 1e15) fail("an integer");
  return static_cast<int64_t>(value);
}

bool is_off(const Given& given) {
  return given.values.empty() ||
         (given.values.size() == 1 &&
          is_among(given.values[0], {"", "false", "0", "0.0", "no", "none", "null", "off"}));
}

}  // namespace fsdp::adopt
