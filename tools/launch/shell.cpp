// Contract: tools/launch/shell.h.
#include "tools/launch/shell.h"

#include <cstdio>

#include <fmt/format.h>
#include <sys/wait.h>

#include "core/error.h"
#include "core/text/shell_word.h"

namespace fsdp::tools {

std::string shell_text(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + shell_word(word);
  return text;
}

ShellOutput output_of(const std::vector<std::string>& words) {
  return output_within(std::chrono::minutes(10), words);
}

ShellOutput output_within(std::chrono::seconds limit, const std::vector<std::string>& words) {
  const std::string command =
      fmt::format("timeout -k 5 {} {} 2>&1 </dev/null", limit.count(), shell_text(words));
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  FSDP_CHECK(pipe != nullptr, "{}: a process cannot be started", words.front());
  ShellOutput output;
  char part[4096];
  while (const size_t length = std::fread(part, 1, sizeof part, pipe))
    output.text.append(part, length);
  const int state = ::pclose(pipe);
  output.status = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
  return output;
}

}  // namespace fsdp::tools
