// Contract: tools/guides/adopt/read_arguments.h.
#include "tools/guides/adopt/read_arguments.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"

namespace fsdp::adopt {
namespace {

using Words = std::vector<std::string>;

// Where the options begin: behind the executable; npos when it is not there.
size_t first_option(const Words& words, const Words& executables) {
  for (size_t i = 0; i < words.size(); ++i) {
    for (const std::string& name : executables) {
      if (words[i] == name || words[i].ends_with("/" + name)) return i + 1;
    }
  }
  return std::string::npos;
}

// Not a number below 0.
bool is_option(const std::string& word) {
  return word.size() > 1 && word[0] == '-' &&
         (word[1] == '-' || std::isalpha(static_cast<unsigned char>(word[1])));
}

// The option at words[i], and its value from the next word; i ends on the last of them. A word
// behind an option that the program does not have is its value: the option is named, not the word.
Given read_option(const Words& words, size_t& i, const std::string& place, const Program& program) {
  const size_t equals = words[i].find('=');
  Given given = {.key = words[i].substr(0, equals), .values = {words[i]}, .place = place};
  given.name = given.key;
  const Rule* rule = rule_of(program, given.name);
  const bool flag = rule && rule->is_flag;
  const bool value_follows = i + 1 < words.size() && !is_option(words[i + 1]);
  if (equals != std::string::npos) {
    if (flag) given.fail("no value after a flag");
    given.values = {words[i].substr(equals + 1)};
  } else if (flag) {
    given.values = {"true"};
  } else if (value_follows) {
    given.values = {words[++i]};
  } else if (rule) {
    fail("{}: {}: expected a value, got none", place, given.key);
  }
  return given;
}

std::vector<Given> options_of(const Words& words, size_t first, const std::string& place,
                              const Program& program) {
  std::vector<Given> all;
  for (size_t i = first; i < words.size(); ++i) {
    const std::string& word = words[i];
    const Given given =
        is_option(word) ? read_option(words, i, place, program)
                        : Given{.key = "DATA", .name = "DATA", .values = {word}, .place = place};
    for (const Given& other : all) {
      FSDP_CHECK(other.key != given.key || other.values == given.values,
                 "{}: {}: given twice, with different values: {} and {}", place, given.key,
                 other.text(), given.text());
    }
    all.push_back(given);
  }
  return all;
}

}  // namespace

ForeignCommand read_command(const Words& arguments, const Words& executables,
                            const Program& program) {
  FSDP_CHECK(!arguments.empty(), "adopt {}: expected the words of a command, got nothing",
             program.name);
  FSDP_CHECK(arguments.size() > 1 || !std::filesystem::is_regular_file(arguments[0]),
             "{}: expected the words of a command, got a file. A shell can hand them over: "
             "NAME() {{ fsdp adopt {} -- \"$@\"; }}; . {} (NAME: the first word of the command)",
             arguments[0], program.name, arguments[0]);
  ForeignCommand out;
  size_t first = 0;
  for (; first < arguments.size() && !is_option(arguments[first]); ++first) {
    const size_t equals = arguments[first].find('=');
    if (equals == std::string::npos) break;
    const std::string name = arguments[first].substr(0, equals);
    out.variables.push_back({.key = name,
                             .name = name,
                             .values = {arguments[first].substr(equals + 1)},
                             .place = program.name});
  }
  // Variables may hold passwords: the head of the result begins behind them.
  const size_t behind = first_option(arguments, executables);
  const bool named = behind != std::string::npos;
  out.source = fmt::format(
      "-- {}",
      fmt::join(arguments.begin() + static_cast<std::ptrdiff_t>(named ? behind - 1 : first),
                arguments.end(), " "));
  out.arguments = options_of(arguments, named ? behind : first, program.name, program);
  return out;
}

}  // namespace fsdp::adopt
