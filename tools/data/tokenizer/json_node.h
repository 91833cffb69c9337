// A place in a JSON file that knows its path, so that whoever reads it can only make errors that
// say where: "tokenizer.json: pre_tokenizer.pretokenizers[1].type: ...".
// For the .cpp files of this folder that read parts of a tokenizer.json.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/io/json.h"

namespace fsdp::data {

class JsonNode {
 public:
  // `value` outlives the node.
  JsonNode(const Json& value, std::string file) : value_(&value), file_(std::move(file)) {}

  const Json& value() const { return *value_; }
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fsdp::fail("{}: {}{}{}", file_, path_, path_.empty() ? "" : ": ",
               fmt::format(format, std::forward<Args>(args)...));
  }

  bool has(std::string_view key) const;  // present and not null
  JsonNode at(std::string_view key) const;
  JsonNode item(size_t index) const;
  size_t size() const;  // of an array; Error for anything else

  std::string text() const;
  bool flag() const;
  int64_t integer(int64_t low, int64_t high) const;
  std::string text(std::string_view key) const { return at(key).text(); }
  bool flag(std::string_view key) const { return at(key).flag(); }
  bool flag(std::string_view key, bool absent) const { return has(key) ? flag(key) : absent; }

  // Error for a key that is neither in the list nor ignored in the component of this name: it may
  // mean something that is not done.
  void check_keys(std::initializer_list<std::string_view> known,
                  std::string_view component = "") const;
  // Error that names the value of key `type`, for a component that nobody knows.
  [[noreturn]] void fail_unknown_type(std::string_view known) const;

 private:
  void expect(bool is, std::string_view what) const {
    if (!is) fail("expected {}, got {}", what, value_->type_name());
  }

  const Json* value_;
  std::string file_;
  std::string path_;
};

// Keys of a tokenizer.json and of a tokenizer_config.json that change no token and no text, by
// component and reason: ignored_keys.json. Every other key that tokenizers and transformers know is
// read, or refused by its name (tests/tools/data/tokenizer/ignored_keys_test.cpp walks them all).
bool is_ignored(std::string_view component, std::string_view key);

}  // namespace fsdp::data
