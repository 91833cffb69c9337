// Contract: tools/adopt/read_arguments.h.
#include "tools/adopt/read_arguments.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "core/io/file.h"
#include "tools/adopt/read_shell.h"

namespace fsdp::adopt {
namespace {

using Words = std::vector<std::string>;

// Where the options begin: behind the executable; npos when it is not there.
size_t first_option(const Words& words, const Words& executables) {
  for (size_t i = 0; i < words.size(); ++i) {
    for (const std::string& name : executables) {
      if (words[i].ends_with(name)) return i + 1;
    }
  }
  return std::string::npos;
}

std::vector<Given> options_of(const Words& words, size_t first, const std::string& place,
                              const Program& program) {
  std::vector<Given> all;
  for (size_t i = first; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "$@" || word == "$*") continue;  // what the script is called with
    Given given = {.key = "DATA", .name = "DATA", .values = {word}, .place = place};
    if (word.starts_with("--")) {
      const size_t equals = word.find('=');
      given.key = given.name = word.substr(0, equals);
      const Rule* rule = rule_of(program, given.name);
      const bool flag = rule && rule->is_flag;
      if (equals != std::string::npos) {
        if (flag) given.fail("no value after a flag");
        given.values = {word.substr(equals + 1)};
      } else if (flag) {
        given.values = {"true"};
      } else if (rule) {
        if (i + 1 == words.size() || words[i + 1].starts_with("--")) {
          fail("{}: {}: expected a value, got none", place, given.key);
        }
        given.values = {words[++i]};
      }
    }
    for (const Given& other : all) {
      FSDP_CHECK(other.key != given.key || other.values == given.values,
                 "{}: {}: given twice, with different values: {} and {}", place, given.key,
                 other.text(), given.text());
    }
    all.push_back(given);
  }
  return all;
}

ForeignCommand from_script(const std::string& file, const Words& executables,
                           const Program& program) {
  const ShellScript script = parse_shell(read_file(file), file);
  ForeignCommand out = {.variables = script.variables, .arguments = {}, .source = file};
  const ShellCommand* found = nullptr;
  for (const ShellCommand& command : script.commands) {
    if (first_option(command.words, executables) == std::string::npos) continue;
    FSDP_CHECK(!found, "{}: expected one command with {}, got one more (first at {})",
               command.place, executables.front(), found->place);
    found = &command;
  }
  FSDP_CHECK(found, "{}: expected a script that calls {}, got none", file,
             fmt::join(executables, " or "));
  out.arguments =
      options_of(found->words, first_option(found->words, executables), found->place, program);
  out.variables.insert(out.variables.end(), found->variables.begin(), found->variables.end());
  return out;
}

}  // namespace

ForeignCommand read_command(const Words& arguments, const Words& executables,
                            const Program& program) {
  FSDP_CHECK(!arguments.empty(), "adopt {}: expected a file or a command, got nothing",
             program.name);
  if (arguments.size() == 1 && !arguments[0].starts_with("--") &&
      first_option(arguments, executables) == std::string::npos) {
    return from_script(arguments[0], executables, program);
  }
  ForeignCommand out = {.source = fmt::format("{}", fmt::join(arguments, " "))};
  size_t first = 0;
  for (; first < arguments.size() && !arguments[first].starts_with("--"); ++first) {
    const size_t equals = arguments[first].find('=');
    if (equals == std::string::npos) break;
    const std::string name = arguments[first].substr(0, equals);
    out.variables.push_back({.key = name,
                             .name = name,
                             .values = {arguments[first].substr(equals + 1)},
                             .place = program.name});
  }
  const size_t behind = first_option(arguments, executables);
  out.arguments =
      options_of(arguments, behind == std::string::npos ? first : behind, program.name, program);
  return out;
}

}  // namespace fsdp::adopt
