// Contract: tools/guides/adopt/given.h.
#include "tools/guides/adopt/given.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"

namespace fsdp::adopt {
namespace {

bool is_among(const std::string& text, std::initializer_list<const char*> known) {
  return std::find(known.begin(), known.end(), lower(text)) != known.end();
}

bool is_yes(const std::string& text) {
  return is_among(text, {"true", "yes", "on", "t", "y", "1"});
}

// "hub_token", "WANDB_API_KEY", "--hub-token": printed in no comment and in no error. What begins
// or ends a text is none.
bool is_secret(std::string key) {
  key = lower(std::move(key));
  for (const char* mark : {"eos_token", "pad_token", "bos_token", "unk_token"}) {
    if (key.ends_with(mark)) return false;
  }
  std::replace(key.begin(), key.end(), '-', '_');
  constexpr std::array kSecrets = {"api_key", "access_key", "token", "secret", "password"};
  return std::any_of(kSecrets.begin(), kSecrets.end(),
                     [&](const char* secret) { return key.ends_with(secret); });
}

}  // namespace

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

std::string Given::text() const {
  return is_secret(key) ? "(hidden)" : fmt::format("{}", fmt::join(values, ","));
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

bool Given::is_item() const { return name.find("[]") != std::string::npos; }

std::vector<std::string> Given::words(char separator) const {
  std::vector<std::string> out;
  for (const std::string& value : values) {
    for (size_t begin = 0; begin <= value.size();) {
      const size_t end = std::min(value.find(separator, begin), value.size());
      std::string word = value.substr(begin, end - begin);
      word.erase(0, word.find_first_not_of(' '));
      word.erase(word.find_last_not_of(' ') + 1);
      if (!word.empty()) out.push_back(word);
      begin = end + 1;
    }
  }
  return out;
}

std::string Given::plain_key() const {
  std::string out;
  bool inside = false;
  for (const char c : key) {
    if (c == ']') inside = false;
    if (!inside) out += c;
    inside = inside || c == '[';
  }
  return out;
}

bool Given::says_truth() const {
  return values.size() == 1 && !is_list &&
         (is_yes(values[0]) || is_among(values[0], {"false", "no", "off", "f", "n", "0"}));
}

bool Given::truth() const {
  if (!says_truth()) fail("true or false");
  return is_yes(one());
}

double Given::number() const {
  double value = 0;
  std::string text = one();
  for (size_t i = 1; i + 1 < text.size(); ++i) {  // Python's and YAML's 500_000
    if (text[i] == '_' && std::isdigit(text[i - 1]) && std::isdigit(text[i + 1])) text.erase(i, 1);
  }
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
