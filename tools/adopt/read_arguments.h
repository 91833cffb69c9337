// The command line of a Python program, typed or in a script, as values by option.
#pragma once

#include <string>
#include <vector>

#include "tools/adopt/rules.h"

namespace fsdp::adopt {

struct ForeignCommand {
  std::vector<Given> variables;  // set in front of the command, or before the command in the script
  std::vector<Given> arguments;  // "--lr"; without a name: "DATA"
  std::string source;            // for the head of the result
};

// `arguments`: one file with a script, or the words of the command. `executables`: the word after
// which the options come, "fairseq-train", also with folders before it; where words are typed it
// may be missing. The rules of `program` say which options are flags.
ForeignCommand read_command(const std::vector<std::string>& arguments,
                            const std::vector<std::string>& executables, const Program& program);

}  // namespace fsdp::adopt
