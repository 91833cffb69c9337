// Contract: tools/commands/options.h.
#include "tools/commands/options.h"

#include <algorithm>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fsdp::tools {

Option Option::required() const { return option_->required(), *this; }
Option Option::expected(int count) const { return option_->expected(count), *this; }
Option Option::expected(int least, int most) const { return option_->expected(least, most), *this; }
Option Option::one_value_each() const { return option_->allow_extra_args(false), *this; }
Option Option::repeatable() const {
  return option_->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll), *this;
}
Option Option::delimiter(char separator) const { return option_->delimiter(separator), *this; }
Option Option::one_of(std::vector<std::string> values) const {
  return option_->check(CLI::IsMember(std::move(values))), *this;
}
Option Option::from_to(int64_t least, int64_t most) const {
  return option_->check(CLI::Range(least, most)), *this;
}
Option Option::from_to(double least, double most) const {
  return option_->check(CLI::Range(least, most)), *this;
}
Option Option::size() const {
  return option_->transform(CLI::AsSizeValue(/*kb_is_1000=*/true)), *this;
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
  return Option(app_->add_option(name, value, help));
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
  return Option(app_->add_flag(name, value, help));
}
Option Command::add_flag(const std::string& name, std::vector<std::string>& values,
                         const std::string& help) const {
  return Option(app_->add_flag(name, values, help));
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
