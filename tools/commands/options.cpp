// Contract: tools/commands/options.h.
#include "tools/commands/options.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <type_traits>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/io/held_stream.h"
#include "tools/config/key_values.h"
#include "tools/launch/launch.h"

namespace fsdp::tools {
namespace {

constexpr char kMark = '\x1f';  // no argument ends so

CLI::Validator without_mark() {
  const auto take_off = [](std::string& text) {
    text = unmarked_argument(std::move(text));
    return std::string();
  };
  return {take_off, ""};
}

}  // namespace

std::string marked_argument(const std::string& argument) {
  return argument.starts_with('[') && argument.ends_with(']') ? argument + kMark : argument;
}
std::string unmarked_argument(std::string argument) {
  if (argument.ends_with(kMark)) argument.pop_back();
  return argument;
}

Option Option::required() const { return option_->required(), *this; }
Option Option::expected(int count) const { return option_->expected(count), *this; }
Option Option::expected(int least, int most) const { return option_->expected(least, most), *this; }
Option Option::one_value_each() const { return option_->allow_extra_args(false), *this; }
Option Option::repeatable() const {
  return option_->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll), *this;
}
Option Option::delimiter(char separator) const { return option_->delimiter(separator), *this; }

namespace {

template <typename T>
CLI::Validator number_from_to(T least, T most) {
  constexpr bool kWhole = std::is_same_v<T, int64_t>;
  const auto refuse = [=](const std::string& text) -> std::string {
    T value{};
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && rest == end && value >= least && value <= most) return "";
    return fmt::format("expected {} from {} to {}, got {:.40}", kWhole ? "an integer" : "a number",
                       least, most, text);
  };
  return {refuse, fmt::format("{} in [{} - {}]", kWhole ? "INT" : "FLOAT", least, most)};
}

}  // namespace

// The library's own checks would speak its language.
Option Option::one_of(std::vector<std::string> values) const {
  const auto refuse = [values](const std::string& text) -> std::string {
    if (std::find(values.begin(), values.end(), text) != values.end()) return "";
    return fmt::format("expected {}, got {:.40}", fmt::join(values, ", "), text);
  };
  const std::string shown = fmt::format("{{{}}}", fmt::join(values, ","));
  return option_->check(CLI::Validator(refuse, shown)), *this;
}
Option Option::from_to(int64_t least, int64_t most) const {
  return option_->check(number_from_to(least, most)), *this;
}
Option Option::from_to(double least, double most) const {
  return option_->check(number_from_to(least, most)), *this;
}
Option Option::size() const {
  const CLI::AsSizeValue as_size(/*kb_is_1000=*/true);
  const auto convert = [as_size](std::string& text) -> std::string {
    const std::string given = text;
    try {
      if (as_size(text).empty()) return "";
    } catch (const CLI::ParseError&) {
    }
    return fmt::format("expected a size such as 64KiB or 16MB, got {:.40}", given);
  };
  return option_->transform(CLI::Validator(convert, as_size.get_description())), *this;
}
Option Option::path() const {
  const auto convert = [](std::string& text) {
    text = config::with_home(text);
    return std::string();
  };
  return option_->transform(CLI::Validator(convert, "")), *this;
}
Option Option::readable() const {
  const auto hold = [](std::string& text) -> std::string {
    try {
      text = config::with_home(text);
      text = held_stream(text);
      const int ranks =
          launcher_environment([](const char* name) { return std::getenv(name); }).size;
      if (!is_name_of_stream(text) || ranks <= 1) return "";
      return fmt::format(
          "{}: one process can read this, the launcher started {}: put it into a file first", text,
          ranks);
    } catch (const Error& error) {
      return error.what();
    }
  };
  return option_->transform(CLI::Validator(hold, "")), *this;
}
Option Option::check(const std::function<std::string(const std::string&)>& reason) const {
  return option_->check(reason), *this;
}
Option Option::needs(const Option& other) const { return option_->needs(other.option_), *this; }
Option Option::excludes(const Option& other) const {
  return option_->excludes(other.option_), *this;
}
size_t Option::count() const { return option_->count(); }
std::string Option::text() const { return option_->as<std::string>(); }

Command Command::add_command(const std::string& name, const std::string& help) const {
  return Command(app_->add_subcommand(name, help));
}
void Command::require_command() const { app_->require_subcommand(1); }

template <typename T>
Option Command::add_option(const std::string& name, T& value, const std::string& help) const {
  return Option(app_->add_option(name, value, help)->transform(without_mark()));
}
template Option Command::add_option(const std::string&, std::string&, const std::string&) const;
template Option Command::add_option(const std::string&, int&, const std::string&) const;
template Option Command::add_option(const std::string&, int64_t&, const std::string&) const;
template Option Command::add_option(const std::string&, uint64_t&, const std::string&) const;
template Option Command::add_option(const std::string&, double&, const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<int>&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<int64_t>&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<double>&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<std::string>&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<int32_t>&,
                                    const std::string&) const;

Option Command::add_flag(const std::string& name, bool& value, const std::string& help) const {
  return Option(app_->add_flag(name, value, help)->disable_flag_override());
}
Option Command::add_flag(const std::string& name, std::vector<std::string>& values,
                         const std::string& help) const {
  return Option(app_->add_flag(name, values, help)->transform(without_mark()));
}
void Command::footer(const std::string& text) const { app_->footer(text); }
void Command::after_parsing(std::function<void()> call) const {
  app_->parse_complete_callback(std::move(call));
}
void Command::when_chosen(std::function<void()> call) const { app_->callback(std::move(call)); }

std::string Command::name() const { return app_->get_name(); }

std::vector<std::string> Command::settings(const std::vector<std::string>& without) const {
  std::vector<std::string> settings;
  for (const CLI::Option* option : app_->get_options()) {
    const std::string name = option->get_name();
    if (std::find(without.begin(), without.end(), name) != without.end()) continue;
    const std::string value = fmt::format("{}", fmt::join(option->results(), " "));
    settings.push_back(name + ": " + (option->count() == 0 ? "not given" : value));
  }
  return settings;
}

}  // namespace fsdp::tools
