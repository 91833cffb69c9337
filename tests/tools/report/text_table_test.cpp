// Tables of texts.
#include "tools/report/text_table.h"

#include <doctest/doctest.h>

namespace fsdp::tools {
namespace {

const TextTable kTable = {.heads = {"case", "s/step"},
                          .rows = {{"a", "1.25 ±0.5"}, {"a|long name", "2"}}};

TEST_CASE("text table: columns side by side, as wide as their longest text") {
  CHECK(side_by_side(kTable) ==
        "case            s/step\n"
        "a            1.25 ±0.5\n"
        "a|long name          2\n");
}

TEST_CASE("text table: Markdown") {
  CHECK(markdown(kTable) ==
        "| case         |    s/step |\n"
        "|--------------|----------:|\n"
        "| a            | 1.25 ±0.5 |\n"
        "| a\\|long name |         2 |\n");
}

TEST_CASE("text table: padding counts characters") {
  CHECK(width_of("±1") == 2);
  CHECK(padded("±1", 4) == "±1  ");
  CHECK(padded("±1", 4, true) == "  ±1");
  CHECK(padded("long", 2) == "long");
}

}  // namespace
}  // namespace fsdp::tools
