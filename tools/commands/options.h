// Declares the commands of the program and their options. commands.json says what a command and an
// option are called, their help, and which values an option takes; a command's source says what an
// option fills. CLI11 stays in options.cpp and command_line.cpp: a file that includes it takes five
// seconds to compile. Read next: tools/commands/commands.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/io/json.h"

namespace CLI {
class App;
}  // namespace CLI

namespace fsdp::tools {

using ChosenCommand = std::function<int()>;  // returns the exit status; throws Error

// CLI11 takes a text in brackets, "[INST] Hi [/INST]", for a list and drops the brackets. So such
// an argument is parsed with a mark behind it, which every option of texts takes off again.
std::string marked_argument(const std::string& argument);
std::string unmarked_argument(std::string argument);

// The text of commands.json: {command: {help, footer, options: {name: about}}}. Options that
// several commands share stand under a name such as "@model". Of `about` only the help must be
// there:
//   help        "{}" in it is Bound::shown
//   is          words: "required"; "path" (~ at its beginning is the home folder), "readable" (a
//               path that is read: a pipe and "-" too, core/io/held_stream.h), "filled" (no empty
//               text), "from_zero" (a finite number), "size" (of memory: 64KiB), "comma_list"
//               (a,b,c), "one_value_each" (--file a --file b, but not --file a b), "repeatable"
//               (the same, shown in the help as one value), "switch" (a list that gets "true", or
//               the value after "=", each time)
//   range       [least, most]: integers, or numbers where these have a point
//   one_of      the only values
//   count       [least, most] values
//   needs, excludes   other options of the command
std::string_view commands_json();

// What an option fills. bool: a flag.
using Target = std::variant<bool*, std::string*, int*, int64_t*, uint64_t*, double*,
                            std::optional<int>*, std::optional<int64_t>*, std::optional<double>*,
                            std::vector<std::string>*, std::vector<int32_t>*>;

// An option of commands.json, or an argument without a name, and what it fills.
struct Bound {
  std::string name;
  Target target;
  std::string (*refusal)(const std::string& text) = nullptr;  // "", or why the text is refused
  std::vector<std::string> one_of = {};                       // where a list of the program knows
  std::string shown = {};                                     // in the help
};

// A command, or a group of them: `fsdp bench step`.
class Command {
 public:
  // `chosen` gets what the command does, once it is chosen.
  explicit Command(CLI::App* app, ChosenCommand* chosen = nullptr, std::string path = "");

  // "step" of "bench".
  Command add_command(const std::string& name) const;
  void require_command() const;  // one of the commands that were added
  // Options of the command's section of commands.json, or of one that commands share.
  void add(const std::vector<Bound>& options) const { add(path_, options); }
  void add(const std::string& section, const std::vector<Bound>& options) const;
  void add(const Bound& option, const Json& about) const;
  void footer(const std::string& text) const;
  // `call` runs once all options are known and before prepare() of when_chosen().
  void after_parsing(std::function<void()> call) const;
  // After the options. `run` keeps what the options fill. `prepare` may ask given().
  void when_chosen(ChosenCommand run, std::function<void()> prepare = {}) const;
  template <typename Options>
  void runs(const std::shared_ptr<Options>& options, int (*run)(const Options&)) const {
    when_chosen([options, run] { return run(*options); });
  }

  const std::string& path() const { return path_; }
  size_t given(const std::string& name) const;      // how often
  std::string text(const std::string& name) const;  // its last value as it was given
  // Name and values of each option: "--seed: 3", "--json: not given".
  std::vector<std::string> settings(const std::vector<std::string>& without) const;

 private:
  // Names of two options, of which the second may not be known yet.
  struct Pairs {
    std::vector<std::pair<std::string, std::string>> needs, excludes;
  };

  CLI::App* app_;
  ChosenCommand* chosen_;
  std::string path_;
  std::shared_ptr<Pairs> pairs_ = std::make_shared<Pairs>();
};

}  // namespace fsdp::tools
