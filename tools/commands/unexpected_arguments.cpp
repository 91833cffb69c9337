// Contract: tools/commands/unexpected_arguments.h.
#include "tools/commands/unexpected_arguments.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/text/similar_names.h"
#include "tools/config/key_values.h"

namespace fsdp::tools {
namespace {

// The key of which `name` is the last part, or all, if the command takes keys by --set.
std::string key_of(const NamedCommand& command, std::string name) {
  if (std::ranges::find(command.options, "--set") == command.options.end()) return "";
  std::replace(name.begin(), name.end(), '-', '_');
  for (const auto& [key, value] : config::key_values(config::TrainConfig())) {
    if (key == name || key.ends_with("." + name)) return key;
  }
  return "";
}

std::string about_option(const NamedCommand& command, const std::string& given) {
  const std::string bare = given.substr(given.find_first_not_of('-'));
  const std::string nearest = nearest_key("--" + bare, command.options);
  std::string meant;
  if (nearest == given) {
    meant = fmt::format("; {} comes after \"{}\"", nearest, command.path);
  } else if (nearest == "--" + bare) {
    meant = fmt::format("; the option is {}", nearest);
  } else if (const std::string key = key_of(command, bare); !key.empty()) {
    meant = fmt::format("; to set the key of this name: --set {}=VALUE", key);
  } else if (resembles("--" + bare, nearest)) {
    meant = fmt::format("; the nearest option is {}", nearest);
  }
  return fmt::format("{}: unknown option {}{} (see fsdp {} --help)", command.path, given, meant,
                     command.path);
}

}  // namespace

std::string unexpected_arguments(const NamedCommand& command,
                                 const std::vector<std::string>& extras) {
  for (const std::string& extra : extras) {
    const std::string name = extra.substr(0, extra.find('='));
    if (name.find_first_not_of('-') == std::string::npos || name[0] != '-') continue;
    return about_option(command, name);
  }
  return fmt::format("{}: unexpected argument \"{}\" (see fsdp {} --help)", command.path,
                     extras.front(), command.path);
}

std::string forgotten_value(const NamedCommand& command,
                            const std::vector<std::string>& arguments) {
  const auto names = [](const std::vector<std::string>& options, const std::string& argument) {
    return std::ranges::find(options, argument.substr(0, argument.find('='))) != options.end();
  };
  for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    const std::string& option = arguments[i];
    if (option.ends_with('=') && option.find('=') + 1 == option.size() &&
        names(command.with_value, option)) {
      const std::string name = option.substr(0, option.size() - 1);
      return fmt::format("{}: {} needs a value; an empty text is {} \"\" (see fsdp {} --help)",
                         command.path, name, name, command.path);
    }
    if (option.find('=') != std::string::npos || !names(command.with_value, option)) continue;
    const bool last = i + 1 == arguments.size();
    if (!last && !names(command.options, arguments[i + 1])) continue;
    const std::string next = last ? "" : fmt::format(", but {} follows", arguments[i + 1]);
    return fmt::format("{}: {} needs a value{} (see fsdp {} --help)", command.path, option, next,
                       command.path);
  }
  return "";
}

}  // namespace fsdp::tools
