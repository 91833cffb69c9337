// Commands as a shell reads them, and what they print.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace fsdp::tools {

// With quotes where a word needs them.
std::string shell_text(const std::vector<std::string>& words);

struct ShellOutput {
  std::string text;  // stdout and stderr
  int status = 0;    // 127: there is no such program; 124: it was ended, because it took too long
};
// A command that nobody answers is ended after ten minutes: Slurm's own try again for two.
ShellOutput output_of(const std::vector<std::string>& words);
ShellOutput output_within(std::chrono::seconds limit, const std::vector<std::string>& words);

}  // namespace fsdp::tools
