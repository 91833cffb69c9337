// The commit that a program names as its source.
#include "tools/report/source_commit.h"

#include <doctest/doctest.h>

namespace fsdp::tools {

TEST_CASE("source commit: a commit's number, with or without changes, or that nothing is known") {
  std::string commit = source_commit();
  if (commit == "unknown") return;
  if (commit.ends_with("-dirty")) commit.resize(commit.size() - std::string("-dirty").size());
  CHECK(commit.size() >= 12);
  CHECK(commit.find_first_not_of("0123456789abcdef") == std::string::npos);
}

}  // namespace fsdp::tools
