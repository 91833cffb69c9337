// Visitors over the list of options. Contract: tools/commands/listed_flags.h.
#include "tools/commands/listed_flags.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include <fmt/format.h>

#include "core/error.h"
#include "tools/commands/commands.h"
#include "tools/config/config_fields.h"

namespace fsdp::tools {
namespace {

using Which = std::vector<FlagOf>;

bool among(const Which& which, const OptionField& option) {
  return std::find(which.begin(), which.end(), option.flag_of) != which.end();
}

void add_flag(const Command& command, const std::string& name, bool& value, const char* help,
              const OptionField&) {
  command.add_flag(name, value, help);
}
void add_flag(const Command& command, const std::string& name, int64_t& value, const char* help,
              const OptionField& option) {
  command.add_option(name, value, help)
      .from_to(option.least.value_or(std::numeric_limits<int64_t>::min()),
               option.most.value_or(std::numeric_limits<int64_t>::max()));
}
void add_flag(const Command& command, const std::string& name, std::string& value, const char* help,
              const OptionField& option) {
  const Option added = command.add_option(name, value, help);
  if (!option.values.empty()) added.one_of(option.values);
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

// Flags that are short for --set.
class KeyFlags : public KeyedVisitor<KeyFlags> {
 public:
  KeyFlags(const Command& command, const Which& which, std::deque<KeyFlag>& flags)
      : command_(command), which_(which), flags_(flags) {}

  template <typename T>
  void field(const char* key, T&, const char* help, const OptionField& option = {}) {
    if (!among(which_, option)) return;
    KeyFlag& flag =
        flags_.emplace_back(KeyFlag{.key = prefix_ + key, .is_switch = std::is_same_v<T, bool>});
    const std::string text = fmt::format("{}: short for --set {}=", help, flag.key);
    if (flag.is_switch) {
      command_.add_flag(flag_name(key), flag.values, text + "true");
    } else {
      command_.add_option(flag_name(key), flag.values, text).repeatable().check(not_empty);
    }
  }
  template <typename S>
  void list(const char*, const char*, std::vector<S>&) {}

 private:
  const Command& command_;
  const Which& which_;
  std::deque<KeyFlag>& flags_;
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
}

void add_listed_flags(const Command& command, const Which& which, std::deque<KeyFlag>& flags) {
  KeyFlags visitor(command, which, flags);
  config::TrainConfig defaults;
  config::visit(visitor, defaults);
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
