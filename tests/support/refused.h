// Tables of what is refused, tests/fixtures/**/*refused.json: cases by what they are about, each
// with its error: all of it ("error"), its beginning ("error_begins") or a part ("error_has").
#pragma once

#include <functional>

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "tests/support/temp_folder.h"

namespace fsdp::test {

// `error_of_case`: what the case's error is; "" where nothing is wrong.
inline void check_refused(const std::string& table,
                          const std::function<std::string(const Json& each)>& error_of_case) {
  const Json cases = read_json_file(fixture_path(table));
  for (const auto& [about, list] : cases.items()) {
    for (const Json& each : list) {
      const std::string of = about + ": " + each.dump(), error = error_of_case(each);
      CAPTURE(of);
      CAPTURE(error);
      if (each.contains("error")) {
        CHECK(error == each["error"].text());
      } else if (each.contains("error_begins")) {
        CHECK(error.starts_with(each["error_begins"].text()));
      } else {
        CHECK(contains(error, each["error_has"].text()));
      }
    }
  }
}

}  // namespace fsdp::test
