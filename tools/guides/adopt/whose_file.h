// Which program's configuration a file is. Not here: what its keys mean (programs.h).
#pragma once

#include <string>
#include <vector>

#include "tools/guides/adopt/rules.h"

namespace fsdp::adopt {

// Whose file it is, where more of its keys are another program's; "" otherwise.
std::string whose_file(const Program& program, const std::vector<Given>& given);
// Of a file that `fsdp train` cannot read: the command that takes it over; "" where the file
// resembles none that there is such a command for. `file`: its name, `text`: what it holds.
std::string way_over(const std::string& file, const std::string& text);

}  // namespace fsdp::adopt
