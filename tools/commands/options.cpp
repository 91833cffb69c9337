// From commands.json to CLI11. Contract: tools/commands/options.h.
#include "tools/commands/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>
#include <type_traits>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "core/io/held_stream.h"
#include "tools/config/key_values.h"
#include "tools/launch/launch.h"

namespace fsdp::tools {
namespace {

constexpr char kMark = '\x1f';  // no argument ends so

const Json& section_of(const std::string& name) {
  static const Json kAll = Json::parse(commands_json());
  return kAll.at(name);
}

// ---- checks: the library's own would speak its language ----

template <typename T>
std::optional<T> number_in(const std::string& text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end ? std::optional(value) : std::nullopt;
}

template <typename T>
CLI::Validator number_from_to(T least, T most) {
  constexpr bool kWhole = std::is_same_v<T, int64_t>;
  const auto refuse = [=](const std::string& text) -> std::string {
    const std::optional<T> value = number_in<T>(text);
    if (value && *value >= least && *value <= most) return "";
    return fmt::format("expected {} from {} to {}, got {:.40}", kWhole ? "an integer" : "a number",
                       least, most, text);
  };
  return {refuse, fmt::format("{} in [{} - {}]", kWhole ? "INT" : "FLOAT", least, most)};
}

CLI::Validator one_of(const std::vector<std::string>& values) {
  const auto refuse = [values](const std::string& text) -> std::string {
    if (std::ranges::find(values, text) != values.end()) return "";
    return fmt::format("expected {}, got {:.40}", fmt::join(values, ", "), text);
  };
  return {refuse, fmt::format("{{{}}}", fmt::join(values, ","))};
}

std::string not_empty(const std::string& text) {
  return text.empty() ? "expected a value, got an empty text" : "";
}

std::string not_below_zero(const std::string& text) {
  const std::optional<double> value = number_in<double>(text);
  const bool good = value && std::isfinite(*value) && *value >= 0;
  return good ? "" : fmt::format("expected a number from 0, got {:.40}", text);
}

// ---- changes of a text before it is checked ----

std::string take_off_mark(std::string& text) {
  text = unmarked_argument(std::move(text));
  return "";
}

std::string resolve_home(std::string& text) {
  text = config::with_home(text);
  return "";
}

std::string hold_stream(std::string& text) {
  try {
    text = held_stream(config::with_home(text));
  } catch (const Error& error) {
    return error.what();
  }
  const int ranks = launcher_environment([](const char* name) { return std::getenv(name); }).size;
  if (!is_name_of_stream(text) || ranks <= 1) return "";
  return fmt::format(
      "{}: one process can read this, the launcher started {}: put it into a file first", text,
      ranks);
}

std::string size_in_bytes(std::string& text) {
  const std::string given = text;
  try {
    if (CLI::AsSizeValue(/*kb_is_1000=*/true)(text).empty()) return "";
  } catch (const CLI::ParseError&) {
  }
  return fmt::format("expected a size such as 64KiB or 16MB, got {:.40}", given);
}

// The words of "is".
void apply_word(const std::string& word, CLI::Option& option) {
  using Change = std::string (*)(std::string&);
  using Refusal = std::string (*)(const std::string&);
  static const std::map<std::string, Change> kChanges = {{"path", resolve_home},
                                                         {"readable", hold_stream}};
  static const std::map<std::string, Refusal> kRefusals = {{"filled", not_empty},
                                                           {"from_zero", not_below_zero}};
  if (const auto change = kChanges.find(word); change != kChanges.end()) {
    option.transform(CLI::Validator(change->second, ""));
  } else if (const auto refusal = kRefusals.find(word); refusal != kRefusals.end()) {
    option.check(refusal->second);
  } else if (word == "size") {
    const std::string description = CLI::AsSizeValue(/*kb_is_1000=*/true).get_description();
    option.transform(CLI::Validator(size_in_bytes, description));
  } else if (word == "required") {
    option.required();
  } else if (word == "comma_list") {
    option.delimiter(',');
  } else if (word == "one_value_each") {
    option.allow_extra_args(false);
  } else if (word == "repeatable") {
    option.expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  } else {
    FSDP_CHECK(word == "switch", "[commands] {}: no such word of commands.json", word);
  }
}

template <typename T>
CLI::Option* added(CLI::App& app, const std::string& name, T& value, const std::string& help,
                   bool is_switch) {
  if constexpr (std::is_same_v<T, bool>) {
    return app.add_flag(name, value, help)->disable_flag_override();
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    if (is_switch) return app.add_flag(name, value, help)->transform({take_off_mark, ""});
  }
  if constexpr (!std::is_same_v<T, bool>) {
    return app.add_option(name, value, help)->transform({take_off_mark, ""});
  }
}

}  // namespace

std::string marked_argument(const std::string& argument) {
  return argument.starts_with('[') && argument.ends_with(']') ? argument + kMark : argument;
}
std::string unmarked_argument(std::string argument) {
  if (argument.ends_with(kMark)) argument.pop_back();
  return argument;
}

Command::Command(CLI::App* app, ChosenCommand* chosen, std::string path)
    : app_(app), chosen_(chosen), path_(std::move(path)) {}

Command Command::add_command(const std::string& name) const {
  const std::string path = path_.empty() ? name : path_ + " " + name;
  const Json& section = section_of(path);
  CLI::App* const app = app_->add_subcommand(name, section.at("help").text());
  if (const Json* footer = section.find("footer")) app->footer(footer->text());
  return Command(app, chosen_, path);
}
void Command::require_command() const { app_->require_subcommand(1); }

void Command::add(const std::string& section, const std::vector<Bound>& options) const {
  const Json& all = section_of(section).at("options");
  for (const Bound& option : options) add(option, all.at(option.name));
}

void Command::add(const Bound& bound, const Json& about) const {
  std::string help = about.at("help").text();
  if (const size_t at = help.find("{}"); at != help.npos) help.replace(at, 2, bound.shown);
  const std::string words = about.value("is", "");
  const bool is_switch = words.find("switch") != words.npos;
  CLI::Option& option = *std::visit(
      [&](auto* value) { return added(*app_, bound.name, *value, help, is_switch); }, bound.target);
  if (const Json* count = about.find("count")) option.expected(count->at(0), count->at(1));
  std::istringstream each(words);
  for (std::string word; each >> word;) apply_word(word, option);
  if (const Json* range = about.find("range")) {
    const Json &least = range->at(0), &most = range->at(1);
    option.check(least.is_number_float()
                     ? number_from_to(least.get<double>(), most.get<double>())
                     : number_from_to(least.get<int64_t>(), most.get<int64_t>()));
  }
  std::vector<std::string> values = bound.one_of;
  if (const Json* known = about.find("one_of")) values = known->get<std::vector<std::string>>();
  if (!values.empty()) option.check(one_of(values));
  if (bound.refusal) option.check(bound.refusal);
  const std::string name = option.get_name();
  for (const Json& other : about.value("needs", Json::array())) {
    pairs_->needs.emplace_back(name, other.text());
  }
  for (const Json& other : about.value("excludes", Json::array())) {
    pairs_->excludes.emplace_back(name, other.text());
  }
}

void Command::footer(const std::string& text) const { app_->footer(text); }
void Command::after_parsing(std::function<void()> call) const {
  app_->parse_complete_callback(std::move(call));
}
void Command::when_chosen(ChosenCommand run, std::function<void()> prepare) const {
  for (const auto& [name, other] : pairs_->needs) {
    app_->get_option(name)->needs(app_->get_option(other));
  }
  for (const auto& [name, other] : pairs_->excludes) {
    app_->get_option(name)->excludes(app_->get_option(other));
  }
  app_->callback([chosen = chosen_, run = std::move(run), prepare = std::move(prepare)] {
    if (prepare) prepare();
    *chosen = run;
  });
}

size_t Command::given(const std::string& name) const { return app_->get_option(name)->count(); }
std::string Command::text(const std::string& name) const {
  return app_->get_option(name)->as<std::string>();
}

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
