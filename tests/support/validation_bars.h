// Published steps of the repository, for tests of predictions.
#pragma once

#include "tests/support/temp_folder.h"
#include "tools/plan/validation.h"

namespace fsdp::test {

// Of the sets whose name begins so.
inline std::vector<tools::PublishedRow> rows_of(const std::string& set) {
  std::vector<tools::PublishedRow> rows = tools::read_published_rows(fixture_path("planning"));
  std::erase_if(rows, [&](const auto& row) { return !row.set.starts_with(set); });
  return rows;
}

}  // namespace fsdp::test
