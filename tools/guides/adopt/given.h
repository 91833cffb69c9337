// One value of a foreign configuration: what it is called there, what it says, where it stands.
// Not here: how files become such values (read_tree.h), what they mean (rules.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::adopt {

struct Given {
  std::string key;   // as it is written: "fsdp_config.fsdp_min_num_params", "--lr", "BATCH_SIZE"
  std::string name;  // as its program knows it: "fsdp_config.min_num_params"; mostly the key
  std::vector<std::string> values;  // one, or the values of a list
  bool is_list = false;
  std::string place;  // "config.yaml:12"; of what was typed, the program's name

  // The values, joined by commas; "(hidden)" of a password, a token or an API key.
  std::string text() const;
  std::string origin() const;  // for a comment: "learning_rate: 5e-5 (args.json:12)"

  // Errors name the place, the key, what was expected and what was there.
  const std::string& one() const;
  bool says_truth() const;  // whether truth() takes it
  bool truth() const;       // true, yes, on, t, y or 1, in any case; or one of the opposites
  int64_t whole() const;    // also 8.0 and 1e8
  double number() const;
  bool is_item() const;           // of a list of sections
  std::string plain_key() const;  // "datasets[0].path" as "datasets[].path"
  // Of a text or a list of texts: what stands between separators, without blanks around it.
  std::vector<std::string> words(char separator) const;
  [[noreturn]] void fail(const std::string& expected) const;
  [[noreturn]] void refuse(const std::string& reason) const;
};

// Whether it says nothing, or turns something off: false, 0, no, none, null, "", [].
bool is_off(const Given& given);
inline bool is_on(const Given* given) { return given && !is_off(*given); }
// ASCII letters alone, whatever the locale.
std::string lower(std::string text);

}  // namespace fsdp::adopt
