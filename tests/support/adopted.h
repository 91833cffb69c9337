// What `fsdp adopt` makes of a file, as text and as the configuration that train reads.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"
#include "tools/config/config.h"
#include "tools/guides/adopt/programs.h"

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

// What a shell prints that has nothing of this environment, in parts that end with a 0.
inline std::vector<std::string> said_by_shell(const std::string& script) {
  std::vector<std::string> out(1);
  FILE* const pipe = ::popen(("env -i PATH=\"$PATH\" bash -c '" + script + "'").c_str(), "r");
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
    if (c == 0) {
      out.emplace_back();
    } else {
      out.back() += static_cast<char>(c);
    }
  }
  ::pclose(pipe);
  out.pop_back();
  return out;
}

// The variables that a script exports.
inline adopt::Variables variables_of(const std::filesystem::path& script) {
  adopt::Variables out;
  for (const std::string& text :
       said_by_shell("set -a; . " + script.string() + " >/dev/null 2>&1; env -0")) {
    out[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }
  return out;
}

// The words of the command that a script calls fairseq-train with.
inline std::vector<std::string> words_of(const std::filesystem::path& script) {
  return said_by_shell(
      "fairseq-train() { printf \"%s\\0\" \"OMP_NUM_THREADS=$OMP_NUM_THREADS\" "
      "\"CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES\" fairseq-train \"$@\"; }; . " +
      script.string());
}

}  // namespace fsdp::test
