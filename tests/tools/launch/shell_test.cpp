// Commands as a shell reads them, and what they print.
#include "tools/launch/shell.h"

#include <doctest/doctest.h>

namespace fsdp::tools {
namespace {

TEST_CASE("shell: the command as a shell reads it") {
  CHECK(shell_text({"fsdp", "--set", "a=[b, c]", "it's", ""}) ==
        "fsdp --set 'a=[b, c]' 'it'\\''s' ''");
}

TEST_CASE("shell: output of both streams, and the status") {
  const ShellOutput both = output_of({"sh", "-c", "echo out; echo \"it's\" >&2; exit 3"});
  CHECK(both.text == "out\nit's\n");
  CHECK(both.status == 3);
  CHECK(output_of({"sh", "-c", "kill -9 $$"}).status == 137);
  CHECK(output_of({"no_such_program_anywhere"}).status == 127);
}

TEST_CASE("shell: a command that takes too long is ended, with what it has started") {
  const auto begin = std::chrono::steady_clock::now();
  const ShellOutput late =
      output_within(std::chrono::seconds(1), {"sh", "-c", "echo early; sleep 60; echo late"});
  CHECK(late.text == "early\n");
  CHECK(late.status == 124);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
}

}  // namespace
}  // namespace fsdp::tools
