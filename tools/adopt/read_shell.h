// What a shell script sets and calls, as far as it can be known without running it: variables with
// values in place of earlier ones, commands word by word, without redirections. Both branches of a
// condition count. What $(...) gives, and variables that
// come from elsewhere, stay as they are written.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tools/adopt/given.h"

namespace fsdp::adopt {

struct ShellCommand {
  std::vector<Given> variables;    // NAME=value in front of the command
  std::vector<std::string> words;  // without quotes
  std::string place;               // "run.sh:12"
};

struct ShellScript {
  std::vector<Given> variables;  // that are set, in order; a name may come twice
  std::vector<ShellCommand> commands;
};

ShellScript parse_shell(const std::string& text, const std::string& source);
// Whether the word still depends on what is not known.
bool is_open(const std::string& word);

// A variable that a Python program reads: os.getenv("NAME", 4), os.environ["NAME"].
struct ReadVariable {
  std::string name, otherwise;  // the value when it is not set; "": none is said
  std::string place;
};
std::vector<ReadVariable> read_variables(const std::string& python, const std::string& source);

}  // namespace fsdp::adopt
