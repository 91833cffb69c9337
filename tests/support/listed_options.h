// Every option of the configuration by itself: the defaults with another value in one field. A walk
// over the list of fields; nobody has to add a new option here.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "tools/config/config_fields.h"
#include "tools/config/config_values.h"

namespace fsdp::test {

// Another value than the one before, within the option's own values and range.
struct AnotherValue {
  const config::OptionField& option;
  int count = 1;

  void change(bool& v) { v = !v; }
  void change(int64_t& v) {
    const int64_t before = v;
    v += count;
    if (option.most && v > *option.most) v = before == *option.least ? *option.most : *option.least;
  }
  void change(double& v) { v = v / 3 + 1e-3 / count; }
  void change(std::string& v) {
    if (option.is_size) {
      v = std::to_string(count) + "MB";
      return;
    }
    if (option.values.empty()) {
      v = "a \"b\"\n#\\ : é" + std::to_string(count);
      return;
    }
    const std::string before = v;
    for (const std::string& known : option.values) {
      if (known != before) v = known;
    }
  }
  void change(std::vector<std::string>& v) { v = {"x, y", "", "[z" + std::to_string(count)}; }
  void change(config::Interval& v) { v.epoch = true; }
  void change(config::NormType& v) { v.power = std::numeric_limits<double>::infinity(); }
  template <typename T>
  void change(std::optional<T>& v) {
    change(v.emplace());
  }
  // A choice: the last that is another one.
  template <typename T>
  requires std::is_enum_v<T>
  void change(T& v) {
    const T before = v;
    for (const auto& [name, value] : config::names_of(T{})) {
      if (value != before) v = value;
    }
  }
};

struct ListedOption {
  std::string key;    // "train.optimizer.kind"
  std::string value;  // another one than the default
  std::string help;
  config::OptionField field;
  config::TrainConfig changed;  // the defaults, but for this value
};

// Visits one configuration after the other: the first field is changed in the first, and so on.
class ListedOptions : public tools::KeyedVisitor<ListedOptions> {
 public:
  template <typename T>
  void field(const char* key, T& value, const char* help, const config::OptionField& option = {}) {
    if (at_++ != wanted_) return;
    AnotherValue{option}.change(value);
    found_ = ListedOption{.key = prefix_ + key,
                          .value = config::value_text(value),
                          .help = help,
                          .field = option,
                          .changed = {}};
  }
  template <typename S>
  void list(const char*, const char*, std::vector<S>&) {}  // of sections: config_test.cpp

  static std::vector<ListedOption> all() {
    std::vector<ListedOption> options;
    for (int wanted = 0;; ++wanted) {
      ListedOptions visitor;
      visitor.wanted_ = wanted;
      config::TrainConfig changed;
      config::visit(visitor, changed);
      if (!visitor.found_) return options;
      options.push_back(*visitor.found_);
      options.back().changed = changed;
    }
  }

 private:
  int at_ = 0, wanted_ = 0;
  std::optional<ListedOption> found_;
};

}  // namespace fsdp::test
