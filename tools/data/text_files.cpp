// Folders by std::filesystem, patterns by the system's glob().
#include "tools/data/text_files.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include <glob.h>

#include "core/error.h"
#include "tools/data/text_format.h"

namespace fsdp::data {
namespace {

namespace fs = std::filesystem;

bool is_folder(const fs::path& path) {
  std::error_code unreadable;
  return fs::is_directory(path, unreadable);
}

// What Hugging Face datasets writes beside data.
bool describes_folder(const std::string& name) {
  return name == "dataset_info.json" || name == "dataset_infos.json" ||
         name == "dataset_dict.json" || name == "state.json";
}

std::vector<std::string> texts_of_folder(const fs::path& folder) {
  std::error_code error;
  std::vector<std::string> out;
  for (fs::directory_iterator file(folder, error), end; !error && file != end;
       file.increment(error)) {
    const std::string name = file->path().filename().string();
    const bool text = has_data_ending(name) && !describes_folder(name);
    const bool hidden = name.starts_with('.');
    if (text && !hidden && !is_folder(file->path())) out.push_back(file->path().string());
  }
  FSDP_CHECK(!error, "{}: cannot read the folder: {}", folder.string(), error.message());
  return out;
}

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  const std::unique_ptr<glob_t, decltype(&::globfree)> free(&found, &::globfree);
  const int status = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  FSDP_CHECK(status == 0 || status == GLOB_NOMATCH, "{}: the pattern cannot be looked up", pattern);
  std::vector<std::string> out;
  for (size_t i = 0; i < found.gl_pathc; ++i) {
    if (!is_folder(found.gl_pathv[i])) out.emplace_back(found.gl_pathv[i]);
  }
  return out;
}

}  // namespace

bool is_pattern(const std::string& name) { return name.find_first_of("*?[") != std::string::npos; }

std::vector<std::string> files_named(const std::string& name) {
  std::error_code unreadable;
  std::vector<std::string> out;
  if (is_folder(name)) {
    out = texts_of_folder(name);
  } else if (fs::exists(name, unreadable)) {
    out = {name};
  } else if (is_pattern(name)) {
    FSDP_CHECK(name.find("**") == std::string::npos,
               "{}: expected a pattern without **: * matches names in one folder; several folders "
               "take a pattern each",
               name);
    out = matches(name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace fsdp::data
