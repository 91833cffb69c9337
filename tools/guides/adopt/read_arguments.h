// The command line of a Python program, as values by option.
#pragma once

#include <string>
#include <vector>

#include "tools/guides/adopt/rules.h"

namespace fsdp::adopt {

struct ForeignCommand {
  std::vector<Given> variables;  // set in front of the command
  std::vector<Given> arguments;  // "--lr"; without a name: "DATA"
  std::string source;            // for the head of the result
};

// `arguments`: the words of the command. `executables`: the word after which the options come,
// "fairseq-train", also with folders before it; it may be missing. The rules of `program` say which
// options are flags. Error for a script: a shell knows what it calls, this program does not.
ForeignCommand read_command(const std::vector<std::string>& arguments,
                            const std::vector<std::string>& executables, const Program& program);

}  // namespace fsdp::adopt
