// Every option of the configuration by itself: the defaults with another value in one field. A walk
// over the list of options; nobody has to add a new option here.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tools/config/options.h"

namespace fsdp::test {

// Another value than the one before, within the option's own values and range.
struct AnotherValue {
  const config::OptionField& option;
  int count = 1;

  void change(const config::Value& value) const {
    if (value.is_choice()) return change_choice(value);
    if (value.is_optional() && value.text() == "auto") value.read(value.read("0") ? "0" : "false");
    const bool changed =
        change_as<bool>(value) || change_as<int64_t>(value) || change_as<double>(value) ||
        change_as<std::string>(value) || change_as<std::vector<std::string>>(value) ||
        change_as<config::Interval>(value) || change_as<config::NormType>(value) ||
        change_as<config::StepsOrShare>(value) || change_as<config::JsonMap>(value);
    if (!changed) fail("[test] an option of an unknown type");
  }

 private:
  template <typename T>
  bool change_as(const config::Value& value) const {
    if (T* const found = value.as<T>()) return change(*found), true;
    auto* const optional = value.as<std::optional<T>>();
    if (optional) change(**optional);
    return optional != nullptr;
  }
  // The last that is another one.
  void change_choice(const config::Value& value) const {
    const std::vector<std::string> names = value.names();
    const std::string unset = value.text();
    if (value.is_optional() && unset == "auto") value.read(names.front());
    const std::string before = value.text();
    for (auto name = names.rbegin(); name != names.rend() && value.text() == before; ++name) {
      value.read(*name);
    }
  }
  void change(bool& v) const { v = !v; }
  void change(int64_t& v) const {
    const int64_t before = v;
    v += count;
    const auto least = static_cast<int64_t>(option.range.least);
    if (option.range.contains(static_cast<double>(v))) return;
    v = before == least ? static_cast<int64_t>(option.range.most) : least;
  }
  void change(config::StepsOrShare& v) const {
    v.percent = 0;
    change(v.steps);
  }
  void change(config::JsonMap& v) const { v.value["a: \"b\""] = "user"; }
  void change(double& v) const { v = v / 3 + 1e-3 / count; }
  void change(std::string& v) const {
    if (option.is_size) {
      v = std::to_string(count) + "MB";
      return;
    }
    if (option.values.empty() && option.flag_of != config::FlagOf::kNone) {
      v = "a-word" + std::to_string(count);  // the same in YAML and for a flag that sets the member
      return;
    }
    if (option.values.empty()) {
      v = "a \"b\"\n#\\ : é" + std::to_string(count);
      return;
    }
    const std::string before = v;
    for (const std::string known : option.values) {
      if (known != before) v = known;
    }
  }
  void change(std::vector<std::string>& v) const { v = {"x, y", "", "[z" + std::to_string(count)}; }
  void change(config::Interval& v) const { v.epoch = true; }
  void change(config::NormType& v) const { v.power = std::numeric_limits<double>::infinity(); }
};

struct ListedOption {
  std::string key;    // "train.optimizer.kind"
  std::string value;  // another one than the default
  std::string help;
  config::OptionField field;
  config::TrainConfig changed;  // the defaults, but for this value
};

struct ListedOptions {
  // But for lists of sections: config_test.cpp.
  static std::vector<ListedOption> all() {
    config::TrainConfig defaults;
    std::vector<ListedOption> all;
    const size_t count = config::options(defaults).size();
    for (size_t i = 0; i < count; ++i) {
      config::TrainConfig changed;
      const config::Option option = config::options(changed)[i];
      if (option.value.is_list()) continue;
      AnotherValue{option.about}.change(option.value);
      all.push_back({.key = option.key,
                     .value = option.value.text(),
                     .help = option.help,
                     .field = option.about,
                     .changed = changed});
    }
    return all;
  }
};

}  // namespace fsdp::test
