// Where the repository lies that a test was built from.
// Not here: the tests' fixtures (fixture_path in temp_folder.h).
#pragma once

#include <filesystem>

namespace fsdp::test {

std::filesystem::path source_folder();

}  // namespace fsdp::test
