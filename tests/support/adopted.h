// What `fsdp adopt` makes of a file, as text and as the configuration that train reads.
#pragma once

#include <string>

#include "tests/support/temp_folder.h"
#include "tools/adopt/programs.h"
#include "tools/config/config.h"

namespace fsdp::test {

struct Adopted {
  explicit Adopted(std::string yaml)
      : text(std::move(yaml)), config(config::parse_config(text, "adopted.yaml", {})) {}

  bool says(const std::string& part) const { return contains(text, part); }
  // The whole line that begins with `key: value`, without its indentation.
  std::string line(const std::string& start) const {
    const size_t at = text.find(" " + start);
    return at == std::string::npos ? "" : text.substr(at + 1, text.find('\n', at) - at - 1);
  }

  std::string text;
  config::TrainConfig config;
};

inline std::filesystem::path adopt_fixture(const std::string& name) {
  return fixture_path("adopt/" + name);
}

}  // namespace fsdp::test
