// Walks over the list of options. Contract: tools/commands/listed_flags.h.
#include "tools/commands/listed_flags.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "core/error.h"
#include "tools/commands/commands.h"
#include "tools/config/options.h"
#include "tools/launch/launch_fields.h"

namespace fsdp::tools {
namespace {

using Which = std::vector<FlagOf>;

bool among(const Which& which, const OptionField& option) {
  return std::find(which.begin(), which.end(), option.flag_of) != which.end();
}

void add_flag(const Command& command, const std::string& name, bool& value, const char* help,
              const OptionField&) {
  command.add({name, &value}, {{"help", help}});
}
void add_flag(const Command& command, const std::string& name, int64_t& value, const char* help,
              const OptionField& option) {
  const auto end = [](double at, int64_t none) {
    return std::isinf(at) ? none : static_cast<int64_t>(at);
  };
  using Integer = std::numeric_limits<int64_t>;
  const Json range = Json::array({Json(end(option.range.least, Integer::min())),
                                  Json(end(option.range.most, Integer::max()))});
  command.add({name, &value}, {{"help", help}, {"range", range}});
}
void add_flag(const Command& command, const std::string& name, std::string& value, const char* help,
              const OptionField& option) {
  command.add(
      {.name = name, .target = &value, .one_of = {option.values.begin(), option.values.end()}},
      {{"help", help}});
}

// Flags that set members.
class MemberFlags {
 public:
  MemberFlags(const Command& command, const Which& which) : command_(command), which_(which) {}

  template <typename T>
  void field(const char* key, T& value, const char* help, const OptionField& option = {}) {
    if constexpr (requires { add_flag(command_, "", value, help, option); }) {
      if (among(which_, option)) add_flag(command_, flag_name(key), value, help, option);
    } else {
      FSDP_CHECK(option.flag_of == FlagOf::kNone, "[flags] {}: there are no flags of its type",
                 key);
    }
  }

 private:
  const Command& command_;
  const Which& which_;
};

}  // namespace

std::string flag_name(const std::string& key) {
  std::string name = "--" + key.substr(key.rfind('.') + 1);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

void add_listed_flags(const Command& command, const Which& which, LaunchOptions& options) {
  MemberFlags flags(command, which);
  visit(flags, options);
  visit_network(flags, options);
}

void add_listed_flags(const Command& command, const Which& which, std::deque<KeyFlag>& flags) {
  config::TrainConfig defaults;
  for (const config::Option& option : config::options(defaults)) {
    if (!among(which, option.about)) continue;
    const bool is_switch = option.value.as<bool>() != nullptr;
    KeyFlag& flag = flags.emplace_back(KeyFlag{.key = option.key, .is_switch = is_switch});
    const std::string text = fmt::format("{}: short for --set {}=", option.help, flag.key);
    command.add({flag_name(flag.key), &flag.values},
                {{"help", text + (is_switch ? "true" : "")},
                 {"is", is_switch ? "switch" : "repeatable filled"}});
  }
}

std::vector<config::Override> overrides_of(const KeyFlag& flag) {
  std::vector<config::Override> all;
  for (const std::string& value : flag.values) {
    const std::string name = flag_name(flag.key);
    const bool plain = flag.is_switch && value == "true";
    all.emplace_back(flag.key + "=" + value,
                     plain ? name : name + (flag.is_switch ? "=" : " ") + value);
  }
  return all;
}

}  // namespace fsdp::tools
