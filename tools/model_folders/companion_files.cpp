// Contract: tools/model_folders/companion_files.h.
#include "tools/model_folders/companion_files.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "core/io/file.h"
#include "core/io/json.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

bool has_code(const fs::path& folder) {
  for (const char* name : {"config.json", "tokenizer_config.json"}) {
    std::error_code unreadable;
    if (!fs::exists(folder / name, unreadable)) continue;
    try {
      const Json json = Json::parse(read_file(folder / name));
      if (json.is_object() && json.contains("auto_map")) return true;
    } catch (const JsonError&) {  // who reads the file for what it says tells of it
    }
  }
  return false;
}

// "LICENSE", "license.txt", "LICENCE-MODEL", "NOTICE", "Use_Policy.md", "README.md"
bool is_companion(const std::string& name) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  constexpr std::array kBeginnings = {"LICENSE", "LICENCE", "NOTICE", "USE_POLICY", "COPYING"};
  return upper == "README.MD" || std::any_of(kBeginnings.begin(), kBeginnings.end(),
                                             [&](const char* b) { return upper.starts_with(b); });
}

}  // namespace

void copy_companion_files(const fs::path& from, const fs::path& to) {
  const bool code = has_code(from);
  std::error_code unreadable;
  for (const auto& item : fs::directory_iterator(from, unreadable)) {
    const std::string name = item.path().filename().string();
    const bool belongs = is_companion(name) || (code && item.path().extension() == ".py");
    // A link of a cache to a file that was not downloaded is no regular file.
    if (!belongs || !item.is_regular_file(unreadable) || fs::exists(to / name)) continue;
    write_file_atomically(to / name, read_file(item.path()));
  }
}

}  // namespace fsdp::tools
