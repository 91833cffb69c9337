// A copy of a reference folder among the fixtures that a test may spoil.
#pragma once

#include <filesystem>
#include <string>

#include "core/io/json.h"
#include "tests/support/temp_folder.h"
#include "tools/verify/expected_results.h"

namespace fsdp::test {

class ReferenceCopy {
 public:
  explicit ReferenceCopy(const char* fixture) {
    for (const auto& file : std::filesystem::directory_iterator(fixture_path(fixture))) {
      std::filesystem::copy_file(file.path(), path() / file.path().filename());
    }
  }
  const std::filesystem::path& path() const { return folder_.path(); }
  // Replaces a value of a JSON file, by pointer.
  void set(const char* file, const char* pointer, const Json& value) const {
    Json json = read_json_file(path() / file);
    const Json* place = json.follow(pointer);
    if (place) {
      const_cast<Json&>(*place) = value;
    } else {  // a new key, or one element more
      const std::string_view path = pointer;
      const size_t last = path.rfind('/');
      const Json* parent = json.follow(path.substr(0, last));
      FSDP_CHECK(parent, "{}: {} leads nowhere", file, pointer);
      if (parent->is_array())
        const_cast<Json&>(*parent).push_back(value);
      else
        const_cast<Json&>(*parent)[path.substr(last + 1)] = value;
    }
    folder_.write(file, json.dump());
  }
  std::string error(DType dtype = DType::kF32, bool trajectory = true) const {
    return error_of(
        [&] { tools::read_expected_results(path(), {.dtype = dtype, .trajectory = trajectory}); });
  }
  std::string unsupported() const {
    try {
      tools::read_expected_results(path(), {.dtype = DType::kF32, .trajectory = true});
    } catch (const tools::Unsupported& error) {
      return error.what();
    }
    return "";
  }

 private:
  TempFolder folder_;
};

}  // namespace fsdp::test
