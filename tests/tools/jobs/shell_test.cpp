// Commands as a shell reads them, and what they print.
#include "tools/jobs/shell.h"

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

}  // namespace
}  // namespace fsdp::tools
