// The prompts, against those of Stanford Alpaca's program.
#include "tools/data/alpaca.h"

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

TEST_CASE("Alpaca's prompts with and without an input") {
  const Json fixture = read_json_file(test::fixture_path("alpaca.json"));
  size_t with_input = 0;
  for (size_t i = 0; i < fixture["rows"].size(); ++i) {
    const Json& row = fixture["rows"][i];
    const std::string input = row.value("input", "");
    with_input += !input.empty();
    CHECK(alpaca_text(row["instruction"], input, row["output"]) ==
          fixture["texts"][i].get<std::string>());
  }
  CHECK(fixture["rows"].size() == 4);
  CHECK(with_input == 2);
}

}  // namespace
}  // namespace fsdp::data
