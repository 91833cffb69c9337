// Words of a shell, with quotation marks only where they are needed.
#include "core/text/shell_word.h"

#include <doctest/doctest.h>

namespace fsdp {
namespace {

TEST_CASE("shell word: what the shell reads as it is, and what it does not") {
  CHECK(shell_word("models/my-model_1.0/x.json") == "models/my-model_1.0/x.json");
  CHECK(shell_word("my model") == "'my model'");
  CHECK(shell_word("$HOME") == "'$HOME'");
  CHECK(shell_word("it's") == "'it'\\''s'");
  CHECK(shell_word("") == "''");
}

}  // namespace
}  // namespace fsdp
