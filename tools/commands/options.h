// Declares the commands of the program and their options. CLI11 stays in options.cpp and
// command_line.cpp: a file that includes it takes five seconds to compile. Read next:
// tools/commands/commands.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace fsdp::tools {

// CLI11 takes a text in brackets, "[INST] Hi [/INST]", for a list and drops the brackets. So such
// an argument is parsed with a mark behind it, which every option of texts takes off again.
std::string marked_argument(const std::string& argument);
std::string unmarked_argument(std::string argument);

// An option of a command, or an argument without a name. Valid as long as the command.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option required() const;
  Option expected(int count) const;
  Option expected(int least, int most) const;
  Option one_value_each() const;           // --file a --file b, but not --file a b
  Option repeatable() const;               // the same, shown in the help as one value
  Option delimiter(char separator) const;  // a,b,c
  Option one_of(std::vector<std::string> values) const;
  Option from_to(int64_t least, int64_t most) const;
  Option from_to(int least, int most) const { return from_to(int64_t{least}, int64_t{most}); }
  Option from_to(double least, double most) const;
  Option size() const;  // of memory: 64KiB, 16MB
  Option path() const;  // ~ at its beginning is the home folder
  // A path that is read; a pipe and "-", the standard input, too: core/io/held_stream.h.
  Option readable() const;
  // "", or why the text is refused.
  Option check(const std::function<std::string(const std::string&)>& reason) const;
  Option needs(const Option& other) const;
  Option excludes(const Option& other) const;

  size_t count() const;      // how often it was given
  std::string text() const;  // its last value as it was given

 private:
  CLI::Option* option_;
};

// A command, or a group of them: `fsdp bench step`.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  Command add_command(const std::string& name, const std::string& help) const;
  void require_command() const;  // one of the subcommands that were added
  // T: a number type, std::string, and std::vector and std::optional of them (options.cpp).
  template <typename T>
  Option add_option(const std::string& name, T& value, const std::string& help) const;
  Option add_flag(const std::string& name, bool& value, const std::string& help) const;
  // Each time that it is given: "true", or the value after "=".
  Option add_flag(const std::string& name, std::vector<std::string>& values,
                  const std::string& help) const;
  void footer(const std::string& text) const;
  // When the command was chosen: after_parsing before chosen(), both once all options are known.
  void after_parsing(std::function<void()> call) const;
  void when_chosen(std::function<void()> call) const;

  std::string name() const;
  // Name and values of each option: "--seed: 3", "--json: not given".
  std::vector<std::string> settings(const std::vector<std::string>& without) const;

 private:
  CLI::App* app_;
};

}  // namespace fsdp::tools
